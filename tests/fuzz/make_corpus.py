#!/usr/bin/env python3
"""Writes the seeds of the corpus: small well-formed files, from which the fuzzer goes on."""
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent / "corpus"


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def gguf(values, tensors, version=3):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    for key, kind, raw in values:
        head += text(key) + struct.pack("<I", kind) + raw
    data = b""
    for name, shape, kind, raw in tensors:
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", kind, len(data))
        data += raw + b"\0" * (-len(raw) % 32)
    return head + b"\0" * (-len(head) % 32) + data


def u32(n):
    return struct.pack("<I", n)


def llama(extra=(), tensors=()):
    keys = {"block_count": 2, "context_length": 64, "embedding_length": 32, "feed_forward_length": 64,
            "attention.head_count": 2, "attention.head_count_kv": 1}
    values = [("general.architecture", 8, text("llama"))]
    values += [("llama." + k, 4, u32(v)) for k, v in keys.items()]
    embedding = ("token_embd.weight", [32, 2], 8, b"\1" * 68)
    return gguf(values + list(extra), [embedding, *tensors])


factors = struct.pack("<8f", *range(1, 9))
files = {
    "empty": gguf([], []),
    "llama": llama(),
    "version2": gguf([("a", 0, b"\7")], [], version=2),
    "rope": llama([("llama.rope.scaling.type", 8, text("yarn")),
                   ("llama.rope.scaling.factor", 6, struct.pack("<f", 4))],
                  [("rope_freqs.weight", [8], 0, factors)]),
    "arrays": gguf([("a", 9, struct.pack("<IQ", 8, 2) + text("x") + text("")),
                    ("b", 9, struct.pack("<IQ3i", 5, 3, 1, 2, 3)),
                    ("c", 9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 0, 0))], []),
    "types": gguf([], [(f"t{k}", [256], k, b"\3" * 1024) for k in
                       (0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 30)]),
}
(HERE / "gguf").mkdir(parents=True, exist_ok=True)
for name, raw in files.items():
    (HERE / "gguf" / name).write_bytes(raw)


def safetensors(header, data=b""):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


tensor = {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}
files = {
    "one": safetensors({"w": tensor, "__metadata__": {"format": "pt"}}, b"12345678"),
    "twice": safetensors(b'{"w":' + json.dumps(tensor).encode() + b',"w":1}', b"12345678"),
    "short": safetensors({"w": tensor}, b"1234"),
    "huge": safetensors({"w": {"dtype": "I8", "shape": [2**40, 2**40], "data_offsets": [0, 0]}}),
    "negative": safetensors({"w": {"dtype": "I8", "shape": [-1], "data_offsets": [0, 0]}}),
    "float": safetensors({"w": {"dtype": "I8", "shape": [1.5], "data_offsets": [0, 1e3]}}),
    "nested": safetensors(b'{"a":' * 500 + b"1" + b"}" * 500),
    "lengths": struct.pack("<Q", 2**63 + 5) + b"{}",
}
(HERE / "safetensors").mkdir(parents=True, exist_ok=True)
for name, raw in files.items():
    (HERE / "safetensors" / name).write_bytes(raw)
