"""Wrappers that say what a value is: each rank's own, or equal on a group of ranks."""

from __future__ import annotations

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
