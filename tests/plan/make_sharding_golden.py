#!/usr/bin/env python3
"""Regenerates golden/sharding.txt with PyTorch's own splitting (torch 2.13). Needs torch; the tests do not.

Each line: shape ; mesh shape ; placements ; coordinate ; local shape ; global row-major element numbers of
the local tensor in its own row-major order, as ranges. R = Replicate, S1 = Shard(1), T1/3 = _StridedShard(1,
split_factor=3).
"""
import itertools
import random
import sys

import torch
from torch.distributed.tensor.placement_types import Replicate, Shard, _StridedShard

from golden_text import ranges

MAX_COORDINATES = 6  # of one case


def placement(text):
    if text == "R":
        return Replicate()
    if text[0] == "S":
        return Shard(int(text[1:]))
    dim, factor = text[1:].split("/")
    return _StridedShard(int(dim), split_factor=int(factor))


def local_elements(shape, mesh_shape, placements, coordinate):
    count = 1
    for size in shape:
        count *= size
    local = torch.arange(count).reshape(shape)
    for size, text, index in zip(mesh_shape, placements, coordinate):
        if text != "R":
            shards, _ = placement(text)._split_tensor(local, size, with_padding=False, contiguous=True)
            local = shards[index]
    return tuple(local.shape), local.reshape(-1).tolist()


def cases():
    fixed = [
        ((8,), (2, 2), ("T0/2", "S0")),
        ((10,), (2, 2), ("T0/2", "S0")),
        ((7, 3), (2, 2), ("T0/2", "S0")),
        ((16, 4), (2, 2, 2), ("T0/4", "S0", "S0")),
        ((5,), (4,), ("S0",)),
        ((0, 3), (2,), ("S0",)),
        ((3, 0), (2,), ("S0",)),
        ((), (2, 2), ("R", "R")),
        ((1,), (8,), ("S0",)),
    ]
    yield from fixed
    rng = random.Random(20)
    for _ in range(240):
        shape = tuple(rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13]) for _ in range(rng.randint(1, 3)))
        mesh_shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))
        texts = []
        for _ in mesh_shape:
            dim = rng.randrange(len(shape))
            texts.append(rng.choice(["R", f"S{dim}", f"S{dim}", f"T{dim}/{rng.randint(1, 5)}"]))
        yield shape, mesh_shape, tuple(texts)


def main(path):
    rng = random.Random(21)
    with open(path, "w") as out:
        version = torch.__version__.split("+")[0]
        out.write(f"# Made by make_sharding_golden.py with torch {version}; see there.\n")
        for shape, mesh_shape, placements in cases():
            coordinates = list(itertools.product(*[range(n) for n in mesh_shape]))
            for coordinate in sorted(rng.sample(coordinates, min(MAX_COORDINATES, len(coordinates)))):
                local_shape, elements = local_elements(shape, mesh_shape, placements, coordinate)
                fields = [shape, mesh_shape, placements, coordinate, local_shape]
                line = [" ".join(map(str, field)) for field in fields] + [ranges(elements)]
                out.write(";".join(line) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
