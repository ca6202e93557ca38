"""Wrappers that say what a value is: each rank's own, equal on a group of ranks, or boxes of an array."""

from __future__ import annotations

import math
import operator
import random
import sys
import typing

import numpy as np

from ._errors import InvalidArgument


class PerRank:
    """A value that each rank has of its own. A load puts it into `value`, or into what `value` holds."""

    __slots__ = ("value", "required")

    def __init__(self, value: typing.Any, required: bool = True) -> None:
        self.value = value
        self.required = required

    def __repr__(self) -> str:
        return f"shoal.per_rank({self.value!r})"


class Replicated:
    """A value that is equal on all ranks of a group."""

    __slots__ = ("value", "group")

    def __init__(self, value: typing.Any, group: typing.Any = None) -> None:
        self.value = value
        self.group = group

    def __repr__(self) -> str:
        return f"shoal.replicated({self.value!r}, group={self.group!r})"


class Boxes:
    """The parts of an array that this rank holds."""

    __slots__ = ("shape", "parts")

    def __init__(self, shape: tuple[int, ...], parts: list[tuple[tuple[int, ...], typing.Any]]) -> None:
        self.shape = shape  # of the whole array
        self.parts = parts  # offsets, and an array of numpy or torch

    def __repr__(self) -> str:
        held = ", ".join(f"{tuple(part.shape)} at {offsets}" for offsets, part in self.parts)
        return f"<shoal.Boxes of shape {self.shape}: {held or 'none'}>"

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("shoal.Boxes cannot be pickled: save it with shoal.Checkpointer or shoal.torch.save")


def per_rank(value: typing.Any, *, required: bool = True) -> PerRank:
    """Marks a value as each rank's own: random states, positions in the data.

    Every rank saves its value, and every rank loads the value of its own number. The value may be a container
    with arrays. A job with more ranks than the one that saved has ranks for which there is no value: that is
    an error, or, with required=False, leaves their value as it is.
    """
    return PerRank(value, required)


def replicated(value: typing.Any, *, group: typing.Any = None) -> Replicated:
    """Declares that a value is equal on all ranks of `group`, so that they share the work of writing it.

    `value` is an array or a container of arrays. `group` is a list of ranks, a torch process group, a
    DeviceMesh, or None for all ranks.
    """
    return Replicated(value, group)


def boxes(
    shape: typing.Sequence[int], parts: typing.Iterable[tuple[typing.Sequence[int], typing.Any]]
) -> Boxes:
    """States which parts of an array this rank holds, where no DTensor does.

    shape: of the whole array, the same on all ranks.
    parts: for each part the offsets of its first element in the whole, and an array of numpy or torch, which
        a save reads and a load fills. An empty list: this rank holds nothing of it.

    All ranks together must hold every element. A part that several ranks hold is equal on them, and one of
    them writes it. Two parts that are not equal must not overlap. The checkpoint has an ordinary array: any
    other sharding loads it, also that of a DTensor.
    """
    whole = _numbers(shape, "shape")
    listed = []
    for offsets, part in _pairs(parts):
        at = _numbers(offsets, "offsets")
        sizes = getattr(part, "shape", None)
        if sizes is None or len(at) != len(whole) or len(sizes) != len(whole):
            raise InvalidArgument(
                f"a part of an array of shape {whole} has the offsets {at} and the shape {sizes}: both need "
                "one number for each dimension of the whole"
            )
        if any(begin + size > end for begin, size, end in zip(at, sizes, whole)):
            raise InvalidArgument(
                f"the part of shape {tuple(sizes)} at {at} is not inside of the shape {whole} of the whole"
            )
        listed.append((at, part))
    return Boxes(whole, listed)


def _pairs(parts: typing.Any) -> list[tuple[typing.Any, typing.Any]]:
    try:
        return [(offsets, part) for offsets, part in parts]
    except (TypeError, ValueError):
        raise InvalidArgument(
            "parts must be a list with a pair for each part: its offsets, and an array of numpy or torch"
        ) from None


def boxes_of_flat(shape: typing.Sequence[int], flat: typing.Any, begin: int) -> Boxes:
    """The boxes of elements that follow each other in row-major order, from number `begin`. `flat` is
    contiguous memory of one dimension; the parts are views of it. Without elements it is one empty part, from
    which a save learns the dtype."""
    whole, listed, at = _numbers(shape, "shape"), [], 0
    for offsets, sizes in _boxes_of_range(whole, begin, begin + int(flat.shape[0])):
        count = math.prod(sizes)
        listed.append((offsets, flat[at : at + count].reshape(sizes)))
        at += count
    if not listed and whole:
        sizes = whole if 0 in whole else (0, *whole[1:])
        listed.append(((0,) * len(whole), flat.reshape(sizes)))
    return Boxes(whole, listed)


def _boxes_of_range(
    shape: tuple[int, ...], begin: int, end: int
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Offsets and sizes of the boxes that tile a range of row-major numbers, in their order."""
    if begin >= end:
        return []
    if not shape:
        return [((), ())]
    row = math.prod(shape[1:])
    first, last = begin // row, (end - 1) // row
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def add_part_of_row(at: int, begin: int, end: int) -> None:
        for offsets, sizes in _boxes_of_range(shape[1:], begin, end):
            found.append(((at, *offsets), (1, *sizes)))

    if begin > first * row or end < (first + 1) * row:
        add_part_of_row(first, begin - first * row, min(end - first * row, row))
        first += 1
    rows_end = last if end < (last + 1) * row else last + 1
    if first < rows_end:
        found.append(((first, *[0] * (len(shape) - 1)), (rows_end - first, *shape[1:])))
        first = rows_end
    if first == last:
        add_part_of_row(last, 0, end - last * row)
    return found


def _numbers(values: typing.Any, name: str) -> tuple[int, ...]:
    try:
        found = tuple(operator.index(each) for each in values)
    except TypeError:
        found = (-1,)
    if any(each < 0 for each in found):
        raise InvalidArgument(f"{name}={values!r}: a list of integers of at least 0 is needed")
    return found


class RngState:
    """The states of the random generators of Python, numpy and, where imported, torch with its devices.

    Put it into a state as ``shoal.per_rank(shoal.RngState())``: a save captures the states, a load sets them.
    """

    def state_dict(self) -> dict[str, typing.Any]:
        state: dict[str, typing.Any] = {
            "python": random.getstate(),
            "numpy": np.random.get_state(legacy=False),
        }
        torch = sys.modules.get("torch")
        if torch is not None:
            state["torch"] = torch.get_rng_state()
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                state["cuda"] = torch.cuda.get_rng_state()
        return state

    def load_state_dict(self, state: dict[str, typing.Any]) -> None:
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        torch = sys.modules.get("torch")
        if torch is not None and "torch" in state:
            torch.set_rng_state(state["torch"])
            if "cuda" in state and torch.cuda.is_available():
                torch.cuda.set_rng_state(state["cuda"])


def ranks_of_group(group: typing.Any) -> list[int]:
    """The launcher's ranks of a group that `replicated` accepts."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available():
        from torch.distributed.device_mesh import DeviceMesh

        if isinstance(group, DeviceMesh):
            return typing.cast("list[int]", group.mesh.flatten().tolist())
        if isinstance(group, torch.distributed.ProcessGroup):
            return list(torch.distributed.get_process_group_ranks(group))
    if isinstance(group, (list, tuple, range)) and all(type(rank) is int for rank in group):
        return list(group)
    raise InvalidArgument(
        f"the ranks of the group {group!r} are unknown: pass a list of ranks, a torch process group, a "
        "DeviceMesh or None"
    )
