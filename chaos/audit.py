"""Reads a root as a stranger would: by docs/reference/format.md alone, with none of Shoal's code.

The trainer's values are known functions of name, place and step (examples/synthetic_state.h), so that every
element of every checkpoint can be judged.
"""

import dataclasses
import json
import os
import re
import struct

MASK = (1 << 64) - 1
ELEMENT_BYTES = {"F32": 4, "BF16": 2, "I64": 8, "U8": 1}
RANDOM_STATE_BYTES = 5056
COMMITTED, ABORTED = 1, 2  # states of a decision; 3 is deleted


@dataclasses.dataclass(frozen=True, order=True)
class Attempt:
    """The order is the one by which `latest` is chosen."""

    generation: int
    attempt: int
    step: int

    def __str__(self) -> str:
        return f"step {self.step} (g{self.generation}a{self.attempt})"

    def folder(self, root: str) -> str:
        return os.path.join(root, f"step-{self.step:08d}", f"g{self.generation}a{self.attempt}")


@dataclasses.dataclass(frozen=True)
class Model:
    """The arguments of the trainer that decide which tensors there are."""

    layers: int = 1
    hidden: int = 16
    vocab: int = 64
    context: int = 8

    def arguments(self) -> list[str]:
        return [
            "--layers",
            str(self.layers),
            "--hidden",
            str(self.hidden),
            "--vocab",
            str(self.vocab),
            "--context",
            str(self.context),
        ]

    def shapes(self) -> dict[str, tuple[str, list[int]]]:
        """Dtype and shape of every tensor of a checkpoint, by its name."""
        width = self.hidden
        weights = {
            "transformer.wte.weight": [self.vocab, width],
            "transformer.wpe.weight": [self.context, width],
        }
        for layer in range(self.layers):
            part = f"transformer.h.{layer}."
            for norm in ("ln_1", "ln_2"):
                weights[part + norm + ".weight"] = weights[part + norm + ".bias"] = [width]
            for name, rows, columns in (
                ("attn.c_attn", width, 3 * width),
                ("attn.c_proj", width, width),
                ("mlp.c_fc", width, 4 * width),
                ("mlp.c_proj", 4 * width, width),
            ):
                weights[part + name + ".weight"] = [rows, columns]
                weights[part + name + ".bias"] = [columns]
        weights["transformer.ln_f.weight"] = weights["transformer.ln_f.bias"] = [width]
        tensors: dict[str, tuple[str, list[int]]] = {}
        for name, shape in weights.items():
            tensors["model." + name] = ("F32", shape)
            tensors["optimizer.exp_avg." + name] = tensors["optimizer.exp_avg_sq." + name] = ("F32", shape)
            tensors["optimizer.step." + name] = ("I64", [])
        return tensors


def attempts_of(root: str) -> dict[Attempt, int]:
    """Every attempt that has a decision, with the decision's state. A damaged head counts as state 0."""
    found = {}
    for step_folder in os.listdir(root):
        if not (step := re.fullmatch(r"step-(\d{8,})", step_folder)):
            continue
        try:
            names = os.listdir(os.path.join(root, step_folder))
        except FileNotFoundError:
            continue  # a node has removed it meanwhile
        for name in names:
            if not (parts := re.fullmatch(r"g(\d+)a(\d+)", name)):
                continue
            attempt = Attempt(int(parts[1]), int(parts[2]), int(step[1]))
            try:
                with open(os.path.join(attempt.folder(root), "manifest.shoal"), "rb") as file:
                    head = file.read(32)
            except FileNotFoundError:
                continue
            is_whole = len(head) == 32 and head[:8] == b"SHOALDEC"
            found[attempt] = struct.unpack_from("<I", head, 12)[0] if is_whole else 0
    return found


def seed_of(name: str, step: int) -> int:
    value = 0xCBF29CE484222325  # FNV-1a, 64 bits
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value ^ (((step + 1) * 0xA0761D6478BD642F) & MASK)


def mix(seed: int, index: int) -> int:
    value = ((seed + index) * 0x9E3779B97F4A7C15) & MASK
    value ^= value >> 32
    value = (value * 0xD6E8FEB86659FD93) & MASK
    return value ^ (value >> 32)


def elements(seed: int, first: int, count: int, width: int) -> bytes:
    """The bytes of `count` elements from index `first` of the whole tensor."""
    mask = ((1 << 8 * width) - 1) & ~(1 << (8 * width - 2))
    return b"".join((mix(seed, first + i) & mask).to_bytes(width, "little") for i in range(count))


def object_bytes(name: str, step: int, size: int) -> bytes:
    seed = seed_of(name, step)
    return bytes(mix(seed, i) & 0xFF for i in range(size))


def rows_of(shape: list[int], offsets: list[int], whole: list[int]):
    """The index in the whole tensor of each row of a piece, and the number of elements of a row."""
    if not whole:
        yield 0, 1
        return
    if 0 in shape:
        return
    at = [0] * (len(shape) - 1)
    while True:
        index = 0
        for dim, size in enumerate(whole):
            index = index * size + offsets[dim] + (at[dim] if dim < len(at) else 0)
        yield index, shape[-1]
        for dim in reversed(range(len(at))):
            at[dim] += 1
            if at[dim] < shape[dim]:
                break
            at[dim] = 0
        else:
            return


def audit_checkpoint(root: str, attempt: Attempt, model: Model, ranks: int) -> list[str]:
    """What is wrong with a committed checkpoint that this many ranks have saved; empty if nothing is."""
    folder, wrong = attempt.folder(root), []
    expected = model.shapes()
    covered: dict[str, set[int]] = {name: set() for name in expected}  # indices in the whole
    objects: set[str] = set()
    for file_name in sorted(os.listdir(folder)):
        if not re.fullmatch(r"rank-\d{5,}(-\d+)?\.safetensors", file_name):
            continue
        with open(os.path.join(folder, file_name), "rb") as file:
            content = file.read()
        try:
            length = struct.unpack_from("<Q", content)[0]
            header = json.loads(content[8 : 8 + length])
            sharding = json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])
        except (struct.error, ValueError, KeyError) as error:
            wrong.append(f"{file_name}: its header cannot be read: {error!r}")
            continue
        for key, piece in header.items():
            if key == "__metadata__":
                continue
            begin, end = (8 + length + offset for offset in piece["data_offsets"])
            data, place = content[begin:end], sharding[key]
            name = place.get("logical_fqn", key)
            if "global_shape" not in place:
                objects.add(name)
                wrong += judge_object(name, attempt.step, data, ranks)
            elif name not in expected:
                wrong.append(f"{file_name} holds {name}, which no trainer has saved")
            elif (piece["dtype"], place["global_shape"]) != expected[name]:
                wrong.append(
                    f"{name} is {piece['dtype']} {place['global_shape']}, and should be {expected[name]}"
                )
            else:
                wrong += judge_piece(name, attempt.step, piece, place, data, covered[name], file_name)
    for name, (_, shape) in expected.items():
        count = 1
        for size in shape:
            count *= size
        if len(covered[name]) != count:
            wrong.append(f"{name}: {count - len(covered[name])} of {count} elements are in no file")
    missing = {"data_loader", *(f"rng@rank{rank}" for rank in range(ranks))} - objects
    if missing:
        wrong.append(f"no file holds {', '.join(sorted(missing))}")
    return wrong


def judge_object(name: str, step: int, data: bytes, ranks: int) -> list[str]:
    if name == "data_loader":
        size = 1000 + (step * 37) % 500
    elif (rank := re.fullmatch(r"rng@rank(\d+)", name)) and int(rank[1]) < ranks:
        size = RANDOM_STATE_BYTES
    else:
        return [f"object {name} was saved by no trainer"]
    return [] if data == object_bytes(name, step, size) else [f"object {name} is not that of step {step}"]


def judge_piece(
    name: str, step: int, piece: dict, place: dict, data: bytes, covered: set[int], file_name: str
) -> list[str]:
    width, seed, at = ELEMENT_BYTES[piece["dtype"]], seed_of(name, step), 0
    for first, count in rows_of(piece["shape"], place["saved_offsets"], place["global_shape"]):
        if data[at : at + count * width] != elements(seed, first, count, width):
            return [f"{file_name}: {name}, elements {first} to {first + count - 1}: not those of step {step}"]
        covered.update(range(first, first + count))
        at += count * width
    return [] if at == len(data) else [f"{file_name}: {name} has {len(data)} bytes instead of {at}"]
