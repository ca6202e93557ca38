#!/usr/bin/env python3
"""Prints dtype_golden.inc: hashes of what PyTorch's Tensor.to() makes of every input.

    make_dtype_golden.py > dtype_golden.inc      needs torch 2.13 (CPU) on x86-64 with AVX2, and numpy

Inputs: all values of an 8-bit or 16-bit dtype; of f32 every upper half with each multiple of 0x1000 in the
lower half, one less and one more, which includes every value at which a rounding changes, and its neighbours.
"""
import sys

import numpy as np
import torch

DTYPES = [("f32", torch.float32, np.uint32), ("f16", torch.float16, np.uint16),
          ("bf16", torch.bfloat16, np.uint16), ("f8_e4m3", torch.float8_e4m3fn, np.uint8),
          ("f8_e5m2", torch.float8_e5m2, np.uint8)]
SIGNED = {np.uint32: torch.int32, np.uint16: torch.int16, np.uint8: torch.int8}


def inputs(bits_type):
    if bits_type is not np.uint32:
        return np.arange(1 << (8 * np.dtype(bits_type).itemsize), dtype=np.uint64).astype(bits_type)
    index = np.arange(65536 * 48, dtype=np.uint64)
    lower = (index % 48 // 3 * 0x1000 + index % 3 + 0xFFFF) & 0xFFFF
    return (index // 48 << np.uint64(16) | lower).astype(np.uint32)


def hash_of(values):
    """The sum of SplitMix64's mixing of each element and its place."""
    index = np.arange(values.size, dtype=np.uint64)
    mixed = values.astype(np.uint64) + (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return int(np.sum(mixed ^ mixed >> np.uint64(31), dtype=np.uint64))


def main():
    capability = torch.backends.cpu.get_cpu_capability()
    if capability != "AVX2":
        sys.exit(f"PyTorch's capability is {capability}: set ATEN_CPU_CAPABILITY=avx2")
    print(f"// By make_dtype_golden.py with torch {torch.__version__}, capability {capability}.")
    print("// clang-format off")
    for source, source_type, source_bits in DTYPES:
        bits = inputs(source_bits)
        signed = bits.view(np.dtype(f"i{bits.dtype.itemsize}"))
        tensor = torch.from_numpy(signed.copy()).view(source_type)
        for target, target_type, target_bits in DTYPES:
            if source == target:
                continue
            found = tensor.to(target_type).view(SIGNED[target_bits]).numpy().view(target_bits)
            print(f"{{DType::{source}, DType::{target}, 0x{hash_of(found):016x}}},")


main()
