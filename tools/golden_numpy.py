"""What the tools that make golden models by numpy share: safetensors of bf16, which numpy has no type
for."""
import json

import numpy as np

DTYPES = {"BF16": "<u2", "I32": "<i4", "F32": "<f4"}


def read_weights(path):
    """Every tensor as float64; integers as they are."""
    data = path.read_bytes()
    header_size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + header_size])
    header.pop("__metadata__", None)
    weights = {}
    for name, entry in header.items():
        begin, end = (8 + header_size + at for at in entry["data_offsets"])
        raw = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        if entry["dtype"] != "I32":
            raw = raw.astype(np.float64)
        weights[name] = raw.reshape(entry["shape"])
    return weights


def to_bf16(x):
    """The nearest numbers that bf16 holds."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def write_bf16(weights, path):
    """Numbers that bf16 holds, each tensor behind the other."""
    header, blobs, at = {}, [], 0
    for name, tensor in weights.items():
        blob = (np.asarray(tensor, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = dict(dtype="BF16", shape=list(tensor.shape), data_offsets=[at, at + len(blob)])
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))
