#!/usr/bin/env python3
"""Attune from Python: decode of two requests over a paged cache. usage: attend.py LIBGLUE

Everything is passed as an address. Here they are those of ctypes arrays; of a torch tensor it is `t.data_ptr()`, and the
stream is `torch.cuda.current_stream().cuda_stream` (index arrays stay on the host: `t.cpu()`). The index arrays are those
of FlashInfer's and SGLang's paged wrappers.
"""
import ctypes
import sys
from ctypes import c_bool, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p

HEADS, KV_HEADS, DIM, PAGE_SIZE, PAGES = 8, 2, 64, 16, 32


def load(path):
    glue = ctypes.CDLL(path)
    glue.attention_error.restype = c_char_p
    glue.attention_open.restype = c_void_p
    glue.attention_open.argtypes = [c_char_p, c_char_p, c_int, c_int, c_int, c_int, c_float]
    glue.attention_close.argtypes = [c_void_p]
    glue.attention_why.restype = c_char_p
    glue.attention_why.argtypes = [c_void_p]
    glue.attention_workspace.restype = c_size_t
    glue.attention_workspace.argtypes = [c_void_p, c_int64, c_int64, c_int64]
    glue.attention_decode.restype = c_bool
    glue.attention_decode.argtypes = ([c_void_p, c_int64] + [c_void_p] * 7 + [c_int64] + [c_void_p] * 2 +
                                      [c_size_t, c_void_p])
    return glue


def int32(values):
    return (c_int32 * len(values))(*values)


def aligned(size):
    """A buffer and an address in it that is a multiple of 256."""
    buffer = ctypes.create_string_buffer(size + 256)
    return buffer, (ctypes.addressof(buffer) + 255) & ~255


def main(path):
    glue = load(path)
    attention = glue.attention_open(b"cpu", b"fp32", HEADS, KV_HEADS, DIM, PAGE_SIZE, 0.125)
    if not attention:
        sys.exit(glue.attention_error().decode())
    print(glue.attention_why(attention).decode())

    # Request a has 20 keys on pages 7 and 3, request b has 5 on page 9.
    qo_indptr, kv_indptr = int32([0, 1, 2]), int32([0, 2, 3])
    kv_indices, kv_last_page_len = int32([7, 3, 9]), int32([4, 5])
    numbers = PAGES * PAGE_SIZE * KV_HEADS * DIM
    k_cache = (c_float * numbers)(*[0.1] * numbers)
    v_cache = (c_float * numbers)(*[0.5] * numbers)
    q = (c_float * (2 * HEADS * DIM))(*[1.0] * (2 * HEADS * DIM))
    o = (c_float * (2 * HEADS * DIM))()
    size = glue.attention_workspace(attention, 2, 3, 20)
    buffer, workspace = aligned(size)

    # Once a step and layer. An engine of many layers plans once for all of them: split the function then.
    if not glue.attention_decode(attention, 2, qo_indptr, kv_indptr, kv_indices, kv_last_page_len, q, k_cache, v_cache,
                                 PAGES, o, workspace, size, None):
        sys.exit(glue.attention_error().decode())
    print(f"o[0] = {o[0]:.3f}, o[last] = {o[-1]:.3f}")

    # What does not fit comes back as a reason.
    kv_last_page_len[0] = 17
    assert not glue.attention_decode(attention, 2, qo_indptr, kv_indptr, kv_indices, kv_last_page_len, q, k_cache,
                                     v_cache, PAGES, o, workspace, size, None)
    print("refused:", glue.attention_error().decode())
    glue.attention_close(attention)


main(sys.argv[1])
