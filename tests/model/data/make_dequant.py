#!/usr/bin/env python3
"""Writes dequant.safetensors: random blocks of every quantised type and what they mean.

The meaning comes from the PyPI package gguf (numpy), which shares nothing with this project:
  pip install numpy gguf && python make_dequant.py
"""
import json
import struct

import gguf
import numpy as np

BLOCKS = 6  # 32-number types take more, so that every test reads at least one K block's worth
# Where each type keeps its fp16 scales inside a block.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}

random = np.random.default_rng(1)
tensors = {}
for name, scales in SCALES.items():
    kind = gguf.GGMLQuantizationType[name]
    per_block, size = gguf.GGML_QUANT_SIZES[kind]
    count = BLOCKS * (256 // per_block)
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in scales:
        blocks[:, at:at + 2] = random.normal(0, 0.05, (count, 1)).astype(np.float16).view(np.uint8)
    values = gguf.quants.dequantize(blocks.reshape(1, -1), kind).astype(np.float32)
    tensors[name + ".blocks"] = ("U8", blocks.reshape(-1))
    tensors[name + ".values"] = ("F32", values.reshape(-1))

header, data = {}, b""
for name, (dtype, array) in tensors.items():
    raw = array.tobytes()
    header[name] = {"dtype": dtype, "shape": list(array.shape),
                    "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open("dequant.safetensors", "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text + data)
