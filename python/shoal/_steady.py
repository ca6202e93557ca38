"""The steady state of a training loop: the same tensors are saved again and again.

A Steady keeps the client's State of a save and the values that it was made from. While a later state has the
same containers with the same tensors in the same memory, only objects that have changed are encoded again.

A save is kept so only if the one before it had the same arrays. A program that copies its arrays for each
save would otherwise have two copies of its state in memory.
"""

from __future__ import annotations

import heapq
import itertools
import operator
import sys
import typing
import weakref

import numpy as np

from . import _tree
from ._wrappers import PerRank, Replicated


class _Level:
    """Containers of the same depth, dicts before lists and tuples, and what they held. They are compared
    together, because a loop in Python over the small dicts of an optimizer takes longer than its tensors."""

    def __init__(self, nodes: list[_tree.Node]) -> None:
        self.types = [type(node.value) for node in nodes]
        self.keys = [tuple(key for key, _ in node.children) for node in nodes if node.kind == "dict"]
        self.lengths = [len(node.children) for node in nodes if node.kind != "dict"]
        children = [child for node in nodes for _, child in node.children]
        self.size = len(children)
        self.is_array = [child.kind in ("array", "alias") for child in children]
        self.arrays = [child.value for child in children if child.kind in ("array", "alias")]
        self.is_dict = [child.kind == "dict" for child in children]
        self.is_sequence = [child.kind in ("list", "tuple") for child in children]
        # Children that identity does not prove to be unchanged.
        self.rest = [
            (i, child)
            for i, child in enumerate(children)
            if child.kind not in ("array", "alias", "dict", "list", "tuple")
        ]
        inner = [child for child in children if child.kind == "dict"]
        inner += [child for child in children if child.kind in ("list", "tuple")]
        self.inner = _Level(inner) if inner else None

    def children_of(self, values: list[typing.Any]) -> list[typing.Any] | None:
        """What the containers hold now; None if they hold other arrays, or other keys."""
        if list(map(type, values)) != self.types:
            return None
        dicts, sequences = values[: len(self.keys)], values[len(self.keys) :]
        if list(map(tuple, dicts)) != self.keys or list(map(len, sequences)) != self.lengths:
            return None
        children = list(itertools.chain(*[each.values() for each in dicts], *sequences))
        arrays = itertools.compress(children, self.is_array)
        same = len(children) == self.size and all(map(operator.is_, arrays, self.arrays))
        return children if same else None

    def inside(self, children: list[typing.Any]) -> list[typing.Any]:
        """The containers of the level below."""
        dicts = itertools.compress(children, self.is_dict)
        return [*dicts, *itertools.compress(children, self.is_sequence)]


def _guards_of(tensors: list[typing.Any]) -> typing.Any:
    """torch.compile's check in C++ that tensors have the dtypes, sizes, strides and views that they have now;
    None if this torch has none. It is stricter than a save needs: what it rejects is looked at in Python."""
    torch = sys.modules.get("torch")
    try:
        guards = typing.cast(typing.Any, torch)._C._dynamo.guards.TensorGuards(
            *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
        )
        return guards if tensors and guards.check(*tensors) else None
    except Exception:  # it is no public part of torch, and may change
        return None


class References:
    """The arrays of a save, which this object does not keep alive. Equal: both have the same arrays."""

    def __init__(self, leaves: list[_tree.Node]) -> None:
        arrays = [leaf.value for leaf in leaves if leaf.kind in ("array", "alias")]
        try:
            self._arrays: list[weakref.ref[typing.Any]] | None = list(map(weakref.ref, arrays))
        except TypeError:  # a scalar of numpy, or Boxes: no Steady can repeat such a save
            self._arrays = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, References) or self._arrays is None or other._arrays is None:
            return False
        same = len(self._arrays) == len(other._arrays)
        return same and all(a() is b() is not None for a, b in zip(self._arrays, other._arrays))


class Steady:
    """One save that can be repeated. It keeps the arrays of that save alive."""

    def __init__(
        self, root: _tree.Node, leaves: list[_tree.Node], state: typing.Any, numbers: list[int]
    ) -> None:
        """`numbers`: those of the objects among the leaves, in their order, in the State."""
        self.state = state
        self._root = root
        self._levels: dict[int, _Level] = {}  # by id of the outermost container
        self._numbers = dict(
            zip((id(leaf) for leaf in leaves if leaf.kind in ("object", "per_rank")), numbers)
        )
        self._encoded: dict[int, bytes] = {}
        self._order = _places(root)
        # What a repeat has met, with its place: objects whose state_dict it has to call, and per_rank values.
        self._statefuls: list[tuple[int, _tree.Node, typing.Any]] = []
        self._per_rank: list[tuple[int, _tree.Node, typing.Any]] = []
        self._lists: dict[int, list[typing.Any] | None] = {}  # by id of the object: a copy
        self._changed: list[tuple[int, bytes]] = []
        self._tensors: list[typing.Any] = []
        self._dtensors: list[tuple[typing.Any, typing.Any]] = []
        self._arrays: list[tuple[typing.Any, typing.Any]] = []
        self.usable = all(self._add_array(leaf) for leaf in leaves if leaf.kind in ("array", "alias"))
        self._pointers = self._addresses()
        self._shapes = [tensor.shape for tensor in self._tensors]
        self._dtypes = [tensor.dtype for tensor in self._tensors]
        self._guards = _guards_of(self._tensors)

    def _add_array(self, leaf: _tree.Node) -> bool:
        """False: the array has to be copied for each save, or is not as simple as this class wants it."""
        value, described = leaf.value, (leaf.target or leaf).array
        if described is not None and described.boxes is not None:
            return False
        if isinstance(value, np.ndarray):
            known = value.__array_interface__
            self._arrays.append((value, known))
            return described is not None and described.address == known["data"][0]
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            return False
        local = getattr(value, "_local_tensor", None)
        if local is not None:
            self._dtensors.append((value, local))
            value = local
        elif described is None:  # a ShardedTensor of which this rank has no shard
            return False
        self._tensors.append(value)
        return (
            value.device.type == "cpu"
            and (described is None or described.address == value.data_ptr())
            and value.is_contiguous()
            and not value.is_conj()
            and not value.is_neg()
        )

    def repeat(self, state: typing.Any, allow_pickle: bool, states: _tree.States) -> bool:
        """Whether the state has the same arrays in the same memory. If so, the State has its objects.

        If not, a Walker with the same States follows. Both call state_dict in the order of the state, so that
        ranks which go different ways call the same collectives in the same order.
        """
        self._changed.clear()
        self._statefuls.clear()
        self._per_rank.clear()
        if not self._same_arrays() or not self._same(self._root, state, allow_pickle):
            return False
        while self._statefuls:
            _, node, value = heapq.heappop(self._statefuls)
            if not self._same(node.children[0][1], states.of(value), allow_pickle):
                return False
        for _, node, value in sorted(self._per_rank):
            node.value = value
            self._note(node, _tree.encode_object(node, allow_pickle, states))
        for number, content in self._changed:
            self.state.set_bytes(number, content)
        return True

    def _same_arrays(self) -> bool:
        return (
            self._addresses() == self._pointers
            and (self._guards is not None and self._guards.check(*self._tensors) or self._same_tensors())
            and all([tensor._local_tensor is local for tensor, local in self._dtensors])
            and all([array.__array_interface__ == known for array, known in self._arrays])
        )

    def _addresses(self) -> list[int]:
        torch = sys.modules.get("torch")
        return list(map(torch.Tensor.data_ptr, self._tensors)) if torch is not None else []

    def _same_tensors(self) -> bool:
        """Whether the tensors, whose addresses are the same, have the same type and form."""
        return (
            [tensor.dtype for tensor in self._tensors] == self._dtypes
            and [tensor.shape for tensor in self._tensors] == self._shapes
            and all([tensor.is_contiguous() for tensor in self._tensors])
            and not any([tensor.is_conj() or tensor.is_neg() for tensor in self._tensors])
        )

    def _same(self, node: _tree.Node, value: typing.Any, allow_pickle: bool) -> bool:
        """Whether a value is as that of the node, but for what `repeat` looks at later."""
        if node.kind == "stateful":
            heapq.heappush(self._statefuls, (self._order[id(node)], node, value))
            return value is node.value
        if node.kind == "per_rank":
            self._per_rank.append((self._order[id(node)], node, value))
            return type(value) is PerRank
        if node.kind == "replicated":
            same = type(value) is Replicated and value.group is node.value.group
            return same and self._same(node.children[0][1], value.value, allow_pickle)
        if node.kind in ("dict", "list", "tuple"):
            return self._same_container(node, value, allow_pickle)
        if node.kind in ("array", "alias"):
            return value is node.value
        return self._same_kind_of_object(node, value, allow_pickle)

    def _same_container(self, node: _tree.Node, value: typing.Any, allow_pickle: bool) -> bool:
        level: _Level | None = self._levels.get(id(node))
        if level is None:
            level = self._levels[id(node)] = _Level([node])
        values = [value]
        while level is not None:
            children = level.children_of(values)
            if children is None:
                return False
            for i, child in level.rest:
                if not self._same(child, children[i], allow_pickle):
                    return False
            values = level.inside(children)
            level = level.inner
        return True

    def _same_kind_of_object(self, node: _tree.Node, value: typing.Any, allow_pickle: bool) -> bool:
        """Encodes an object again if it may have changed. False: it is not an object any more."""
        if value is node.value and type(value) in (int, float, str, bool, bytes, type(None)):
            return True
        if _is_list_of_ints(value):
            # To encode an optimizer's list of parameters takes longer than to compare all tensors.
            if self._lists.get(id(node)) == value:
                return True
        elif not _tree.is_object(value, allow_pickle):
            return False
        node.value = value
        content = _tree.encode_object(node, allow_pickle)
        self._lists[id(node)] = list(value) if _is_list_of_ints(value) else None
        self._note(node, content)
        return True

    def _note(self, node: _tree.Node, content: bytes) -> None:
        number = self._numbers[id(node)]
        if self._encoded.get(number) != content:
            self._changed.append((number, content))
            self._encoded[number] = content


def _places(root: _tree.Node) -> dict[int, int]:
    """By id, where in the order of the state those nodes are whose values have code of their own to call."""
    places: dict[int, int] = {}
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if node.kind in ("stateful", "per_rank"):
            places[id(node)] = len(places)
        nodes.extend(
            child for _, child in reversed(node.children) if child.children or child.kind == "per_rank"
        )
    return places


def _is_list_of_ints(value: typing.Any) -> bool:
    return type(value) is list and set(map(type, value)) == {int}
