#!/usr/bin/env python3
"""Regenerates golden/tiles.txt. Needs numpy; the tests do not.

This is XLA's rule said once more, not XLA itself: pad the tensor to a multiple of the tiles in every
dimension, cut it evenly, give the pieces to the devices of the tile assignment in row-major order, and drop
the padding (HloSharding::TileOffsetForDevice and TileLimitForDevice of xla/hlo/ir/hlo_sharding.cc give the
same tiles by arithmetic, which is what plan/ does). "<=" is XLA's iota form: numpy's own reshape and
transpose.

Each line: shape ; tiles ; 1 if the last tile dimension replicates ; assignment ; device:rank of every
device ; a rank ; what it holds: for each distinct tile with elements, in ascending order, devices/elements,
joined by "|". Elements are global row-major numbers as ranges. An assignment is "replicated", "maximal
DEVICE", device ids, or "<=RESHAPE T TRANSPOSE".
"""
import itertools
import random
import sys

import numpy

from golden_text import ranges

MAX_RANKS = 3  # of one case


def devices_of(assignment, owners):
    if assignment == "replicated":
        return list(owners)
    if assignment.startswith("maximal"):
        return [int(assignment.split()[1])]
    if assignment.startswith("<="):
        reshape, transpose = assignment[2:].split("T")
        array = numpy.arange(numpy.prod([int(n) for n in reshape.split()]))
        array = array.reshape([int(n) for n in reshape.split()])
        return array.transpose([int(n) for n in transpose.split()]).reshape(-1).tolist()
    return [int(n) for n in assignment.split()]


def elements_by_device(shape, tiles, replicates, assignment, owners):
    """The element numbers that each assigned device holds, in the row-major order of its tile."""
    tensor = numpy.arange(numpy.prod(shape, dtype=int)).reshape(shape)
    devices = devices_of(assignment, owners)
    if not tiles:
        return {device: tensor.reshape(-1).tolist() for device in devices}
    counts = tiles[:-1] if replicates else tiles
    pad = [(0, -size % count) for size, count in zip(shape, counts)]
    padded = numpy.pad(tensor, pad, constant_values=-1) if pad else tensor
    grid = numpy.array(devices).reshape(tiles)
    held = {}
    for at in itertools.product(*[range(count) for count in counts]):
        piece = padded
        for dim, (index, count) in enumerate(zip(at, counts)):
            piece = numpy.split(piece, count, axis=dim)[index]
        numbers = [n for n in piece.reshape(-1).tolist() if n != -1]
        for device in numpy.atleast_1d(grid[at]).tolist():
            held[device] = numbers
    return held


def held_by(rank, elements, owners):
    tiles = {}
    for device in sorted(owners):
        if owners[device] == rank and elements.get(device):
            tiles.setdefault(tuple(elements[device]), []).append(device)
    # The first element of a tile is its offset, and row-major numbers order as offsets do.
    ordered = sorted(tiles.items())
    return "|".join(f"{','.join(map(str, devices))}/{ranges(numbers)}" for numbers, devices in ordered)


def divisors(number):
    return [n for n in range(1, number + 1) if number % n == 0]


def random_factors(rng, number, count):
    factors = []
    for _ in range(count - 1):
        factors.append(rng.choice(divisors(number)))
        number //= factors[-1]
    factors.append(number)
    rng.shuffle(factors)
    return factors


def cases():
    def uniform(ranks, each):
        return {device: device // each for device in range(ranks * each)}

    yield (8, 4), (2, 2), 0, "0 1 2 3", uniform(2, 2)
    yield (7, 4), (4, 1), 0, "0 1 2 3", uniform(2, 2)
    yield (5,), (4,), 0, "3 1 2 0", uniform(2, 2)
    yield (3,), (8,), 0, "<=8T0", uniform(2, 4)
    yield (8, 6), (2, 2, 2), 1, "<=2 4T1 0", uniform(4, 2)
    yield (8, 6), (2, 1, 4), 1, "<=2 2 2T2 0 1", uniform(2, 4)
    yield (8, 6), (1, 1, 8), 1, "<=8T0", uniform(2, 4)
    yield (6, 2), (3, 1, 1), 1, "4 0 2", uniform(3, 2)
    yield (), (), 0, "replicated", uniform(2, 2)
    yield (), (4,), 1, "0 1 2 3", uniform(2, 2)
    yield (3, 3), (), 0, "replicated", {7: 0, 9: 2, 11: 2}
    yield (3, 3), (), 0, "maximal 9", {7: 0, 9: 2, 11: 2}
    yield (0, 4), (2, 2), 0, "0 1 2 3", uniform(2, 2)
    yield (2, 3, 2, 3, 2), (2, 1, 2, 1, 2), 0, "<=2 2 2T2 1 0", uniform(2, 4)
    rng = random.Random(30)
    for _ in range(140):
        dims = rng.randint(1, 5)
        sizes = [1, 2, 3, 4, 5, 6, 7] + ([8, 13, 17] if dims < 4 else [])
        shape = tuple(rng.choice(sizes) for _ in range(dims))
        if rng.random() < 0.04:
            shape = (0,) + shape[1:]
        count = rng.choice([1, 2, 3, 4, 6, 8, 12, 16])
        replicates = int(rng.random() < 0.4)
        tiles = random_factors(rng, count, dims + replicates)
        if rng.random() < 0.4:
            reshape = random_factors(rng, count, rng.randint(1, 3))
            transpose = rng.sample(range(len(reshape)), len(reshape))
            assignment = f"<={' '.join(map(str, reshape))}T{' '.join(map(str, transpose))}"
            each = rng.choice([1, 2, 2, 4])
            owners = {device: device // each for device in range(count)}
        else:
            ids = rng.sample(range(3 * count), count + rng.randint(0, 2))
            ranks = rng.randint(1, count)
            owners = {device: rng.randrange(ranks) for device in ids}
            assignment = " ".join(map(str, rng.sample(ids, count)))
        yield shape, tuple(tiles), replicates, assignment, owners


def main(path):
    rng = random.Random(31)
    with open(path, "w") as out:
        out.write("# Made by make_tiles_golden.py; see there.\n")
        for shape, tiles, replicates, assignment, owners in cases():
            elements = elements_by_device(shape, tiles, replicates, assignment, owners)
            ranks = sorted(set(owners.values()))
            for rank in sorted(rng.sample(ranks, min(MAX_RANKS, len(ranks)))):
                fields = [" ".join(map(str, shape)), " ".join(map(str, tiles)), str(replicates), assignment]
                fields.append(" ".join(f"{device}:{owners[device]}" for device in sorted(owners)))
                fields += [str(rank), held_by(rank, elements, owners)]
                out.write(";".join(fields) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
