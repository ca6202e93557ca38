"""The structure of a state: nested containers, and the values at their leaves.

`walk` makes Nodes of a state. The name (fqn) of a leaf is its path, joined with dots. A save adds every leaf
to a State of the client; a load adds arrays and slots to be filled, and `rebuild` then puts the loaded values
into the containers of the caller.

A checkpoint also has the structure itself as a JSON object, so that it can be loaded without a state to fill.
Its name ends with a hash of its contents: ranks with equal structures share one object, and ranks with
different structures, such as the stages of a pipeline, each have theirs.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import sys
import typing

import numpy as np

from . import _arguments, _arrays, _client, _values
from ._errors import Corrupt, InvalidArgument
from ._wrappers import Boxes, PerRank, Replicated, ranks_of_group

STRUCTURES = "__shoal_tree__"  # the prefix of the names of structures

_DEPTH_MAX = 200  # containers inside each other: far below what Python's stack holds

Json = typing.Any


class Node:
    """A container (dict, list, tuple, stateful, replicated) or a leaf (array, alias, object, per_rank)."""

    __slots__ = ("kind", "name", "value", "children", "array", "group", "slot", "target", "loaded")

    def __init__(self, kind: str, name: str, value: typing.Any) -> None:
        self.kind = kind
        self.name = name
        self.value = value
        self.children: list[tuple[typing.Any, Node]] = []
        self.array: _arrays.Array | None = None
        self.group: typing.Any = None  # a Mesh: declared to be replicated over it
        self.slot: int | None = None  # of an object that a load fills
        self.target: Node | None = None  # of an alias
        self.loaded: typing.Any = NOTHING  # the value of an object or a subtree, once it is loaded


NOTHING = object()


def is_stateful(value: typing.Any) -> bool:
    """Whether the value has state_dict and load_state_dict, as modules, optimizers and schedulers do."""
    if isinstance(value, type):
        return False
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def state_of(value: typing.Any) -> typing.Any:
    """The state of an object with state_dict. A module gives its own tensors, not new views of them, unless
    it or its class has a state_dict of its own that cannot."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.nn.Module):
        return value.state_dict()
    own = vars(value).get("state_dict")  # not kept in the cache: it may keep the module alive
    can_keep = _takes_keep_vars(own) if own is not None else _can_keep_vars(type(value).state_dict)
    return value.state_dict(keep_vars=True) if can_keep else value.state_dict()


@functools.lru_cache(maxsize=1000)
def _can_keep_vars(state_dict: typing.Callable[..., typing.Any]) -> bool:
    return _takes_keep_vars(state_dict)


def _takes_keep_vars(state_dict: typing.Callable[..., typing.Any]) -> bool:
    try:
        parameters = inspect.signature(state_dict).parameters
    except (TypeError, ValueError):  # it is not written in Python
        return False
    return "keep_vars" in parameters or any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()
    )


def _has_fixed_keys(value: typing.Any) -> bool:
    """A module has the keys that a load may fill. Other objects may have none at first, and an optimizer may
    lack the state of parameters that have had no gradient yet."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_optimizer(value: typing.Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.optim.Optimizer)


def _is_of_jax(value: typing.Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def is_object(value: typing.Any, allow_pickle: bool) -> bool:
    """Whether the value is stored as one object: a plain value, or where allowed a pickle."""
    if _values.is_plain(value):
        return True
    if not allow_pickle or isinstance(value, dict):
        return False
    if type(value) in (list, tuple, PerRank, Replicated, Boxes):
        return False
    return not _arrays.is_array(value) and not is_stateful(value)


class States:
    """What the calls of state_dict return in one save, which may look at its state twice. Each object is
    asked once, because state_dict may call collectives."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[typing.Any, typing.Any]] = {}  # by id of the object, which is kept

    def of(self, value: typing.Any) -> typing.Any:
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = value, state_of(value)
        return known[1]


class Walker:
    """Makes Nodes of a state, and lists its leaves."""

    def __init__(self, rank: int, writable: bool, allow_pickle: bool, states: States | None = None) -> None:
        self.rank = rank
        self.writable = writable
        self.allow_pickle = allow_pickle
        self.states = states or States()
        self.leaves: list[Node] = []
        self.statefuls: list[Node] = []  # whose state may have other keys after a load
        self.extra_states: list[Node] = []  # of modules: likewise
        self.prepared: list[Node] = []  # optimizers without state, which a load gives one to fill
        self.skipped: set[str] = set()  # names of leaves that a load leaves as they are
        self.nested: list[Node] = []  # of a load: dicts, lists and tuples, each before those inside it
        self._by_name: dict[str, Node] = {}
        self._by_memory: dict[typing.Any, Node] = {}
        self._containers: set[int] = set()  # those that the walk is inside of

    def undo(self) -> None:
        """After a load that raised: optimizers have no state again, as before."""
        for node in self.prepared:
            node.value.state.clear()

    def walk_all(self, state: typing.Any) -> Node:
        """Makes the Node of a whole state."""
        try:
            return self.walk(state)
        except RecursionError:  # of is_plain, or of an object's own state_dict
            raise InvalidArgument("a list or a tuple in the state contains itself") from None

    def walk(self, value: typing.Any, name: str = "", group: typing.Any = None) -> Node:
        kind = type(value)
        if isinstance(value, dict):
            return self._container("dict", value, name, group, list(value.items()))
        if kind is list or kind is tuple:
            if _values.is_plain(value):
                return self._leaf(Node("object", name, value))
            return self._container(kind.__name__, value, name, group, list(enumerate(value)))
        if _arrays.is_array(value) or kind is Boxes:
            return self._array(value, name, group)
        if kind is PerRank:
            return self._leaf(Node("per_rank", name, value))
        if kind is Replicated:
            node = Node("replicated", name, value)
            ranks = None if value.group is None else ranks_of_group(value.group)
            node.children.append(
                (None, self.walk(value.value, name, "world" if ranks is None else tuple(ranks)))
            )
            return node
        if _values.is_plain(value):
            return self._leaf(Node("object", name, value))
        if is_stateful(value):
            node = Node("stateful", name, value)
            if self.writable and _prepare(value):
                self.prepared.append(node)
            node.children.append((None, self.walk(self.states.of(value), name, group)))
            if _has_fixed_keys(value):
                self.extra_states += _extra_states(node.children[0][1])
            else:
                self.statefuls.append(node)
            return node
        if self.allow_pickle:
            return self._leaf(Node("object", name, value))
        if _is_of_jax(value):
            raise InvalidArgument(f"'{name}' is an array of JAX: call shoal.jax.save and shoal.jax.load")
        raise InvalidArgument(
            f"'{name}' is a {kind.__module__}.{kind.__qualname__}, which Shoal cannot save. It saves arrays, "
            "numbers, strings, bytes, None, dicts, lists and tuples of them, and objects with state_dict and "
            "load_state_dict. Convert the value, or pass allow_pickle=True to store it as a pickle"
        )

    def _container(
        self,
        kind: str,
        value: typing.Any,
        name: str,
        group: typing.Any,
        items: list[tuple[typing.Any, typing.Any]],
    ) -> Node:
        if id(value) in self._containers:
            raise InvalidArgument(f"'{name}' contains itself")
        if len(self._containers) == _DEPTH_MAX:
            raise InvalidArgument(f"the state has more than {_DEPTH_MAX} containers inside each other")
        self._containers.add(id(value))
        node = Node(kind, name, value)
        if self.writable and name:
            self.nested.append(node)
        prefix = name + "." if name else ""
        for key, child in items:
            if type(key) is not str and type(key) is not int:
                where = f"'{name}'" if name else "the state"
                raise InvalidArgument(f"{where} has the key {key!r}: keys of a dict must be str or int")
            node.children.append((key, self.walk(child, prefix + str(key), group)))
        self._containers.discard(id(value))
        return node

    def _array(self, value: typing.Any, name: str, group: typing.Any) -> Node:
        node = Node("array", name, value)
        node.group = group
        try:
            node.array = _arrays.describe(value, name, self.rank, self.writable)
        except InvalidArgument:
            if not (self.allow_pickle and isinstance(value, (np.ndarray, np.generic))):
                raise
            return self._leaf(Node("object", name, value))
        key = node.array.alias_key if node.array else None
        if key is not None:
            first = self._by_memory.setdefault(key, node)
            if first is not node:
                node.kind, node.target, node.array = "alias", first, None
        return self._leaf(node)

    def _leaf(self, node: Node) -> Node:
        other = self._by_name.setdefault(node.name, node)
        if other is not node or not node.name:
            what = f"two values have the name '{node.name}'" if node.name else "a name is empty"
            raise InvalidArgument(
                f"{what}: keys are joined with dots to make names, and names must be unique"
            )
        if node.name.startswith(STRUCTURES):
            raise InvalidArgument(f"the name '{node.name}' is reserved: choose another key")
        if not node.name.isascii() and not _arguments.is_utf8(node.name):
            raise InvalidArgument(f"the name {node.name!r} is not valid Unicode: choose other keys")
        self.leaves.append(node)
        return node


def _extra_states(content: Node) -> list[Node]:
    """The containers that modules have returned from get_extra_state."""
    return [
        child
        for key, child in content.children
        if str(key).endswith("_extra_state") and child.kind in ("dict", "list", "tuple")
    ]


def _prepare(value: typing.Any) -> bool:
    if "torch" not in sys.modules:
        return False
    from . import _tensors

    return _tensors.prepare_for_load(value)


def encode_object(node: Node, allow_pickle: bool, states: States | None = None) -> bytes:
    if node.kind == "per_rank":
        return encode_per_rank(node, allow_pickle, states)
    try:
        if _values.is_plain(node.value):
            return _values.encode(node.value)
    except (ValueError, RecursionError) as error:  # an int with more than 4,300 digits, very deep lists
        raise InvalidArgument(f"'{node.name}' cannot be written as JSON: {error}") from None
    try:
        return _values.encode_pickle(node.value)
    except Exception as error:  # whatever __reduce__ and __getstate__ raise
        raise InvalidArgument(
            f"'{node.name}' is a {type(node.value).__qualname__}, which cannot be pickled: {error}"
        ) from error


def encode_per_rank(node: Node, allow_pickle: bool, states: States | None = None) -> bytes:
    """One object of a whole subtree: the tensors in it must be whole on this rank."""
    walker = Walker(0, False, allow_pickle, states)
    try:
        root = walker.walk_all({"value": node.value.value})
    except InvalidArgument as error:
        raise InvalidArgument(f"in the per_rank value '{node.name}': {error}") from None
    objects: dict[str, str] = {}
    arrays: list[tuple[str, tuple[int, ...], memoryview]] = []
    numbers: dict[int, int] = {}
    for leaf in walker.leaves:
        if leaf.kind == "per_rank":
            raise InvalidArgument(f"'{node.name}': a per_rank value may not contain another one")
        if leaf.kind == "array":
            if leaf.array is None or leaf.array.mesh is not None or leaf.array.boxes is not None:
                raise InvalidArgument(
                    f"'{node.name}': a per_rank value may not contain a DTensor or a part of an array"
                )
            numbers[id(leaf)] = len(arrays)
            arrays.append((leaf.array.dtype, leaf.array.shape, _arrays.host_bytes(leaf.array)))
        elif leaf.kind == "object":
            objects[leaf.name] = encode_object(leaf, allow_pickle).decode("latin-1")

    def header(child: Node) -> Json:
        if child.kind in ("dict", "list", "tuple"):
            return {child.kind: [[key, header(each)] for key, each in child.children]}
        if child.kind in ("stateful", "replicated"):
            return header(child.children[0][1])
        if child.kind == "object":
            return {"object": objects[child.name]}
        source = child.target or child
        return {"array": [numbers[id(source)], _arrays.kind_of(child.value)]}

    return _values.pack(header(root), arrays)


def unpacked(content: bytes, name: str, allow_pickle: bool) -> typing.Any:
    """The value that encode_per_rank has encoded."""
    tree, arrays = _values.unpack_parts(content, name)
    made: dict[int, typing.Any] = {}

    def value_of(node: Json) -> typing.Any:
        ((kind, content),) = node.items()
        if kind == "dict":
            return {key: value_of(each) for key, each in content}
        if kind in ("list", "tuple"):
            values = [value_of(each) for _, each in content]
            return values if kind == "list" else tuple(values)
        if kind == "object":
            return _values.decode(content.encode("latin-1"), name, allow_pickle)
        number, array_kind = content
        if number not in made:
            made[number] = _arrays.from_bytes(array_kind, *arrays[number], name)
        return made[number]

    return value_of(tree)["value"]


# ---- the structure as JSON ----


def structure_of(node: Node) -> Json:
    if node.kind == "dict":
        if all(type(key) is str for key, _ in node.children):
            return {"dict": {key: structure_of(child) for key, child in node.children}}
        return {"items": [[key, structure_of(child)] for key, child in node.children]}
    if node.kind in ("list", "tuple"):
        return {node.kind: [structure_of(child) for _, child in node.children]}
    if node.kind in ("stateful", "replicated"):
        return structure_of(node.children[0][1])
    if node.kind == "array":
        return _arrays.kind_of(node.value)
    if node.kind == "alias":
        assert node.target is not None
        return {"alias": node.target.name, "kind": _arrays.kind_of(node.value)}
    return node.kind


def named_structure(structure: Json) -> tuple[str, bytes]:
    """The name and the bytes under which a checkpoint has a structure."""
    content = json.dumps(structure, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )
    return f"{STRUCTURES}.{hashlib.sha256(content).hexdigest()[:32]}", content


class Structures:
    """Makes the structure object of each save, and keeps the last one: a training loop saves the same one."""

    def __init__(self) -> None:
        self._signature: typing.Any = None
        self._encoded: tuple[str, bytes] = ("", b"")

    def of(self, root: Node) -> tuple[str, bytes]:
        """The name and the bytes of the structure."""
        signature: list[typing.Any] = []
        _sign(root, signature)
        if signature != self._signature:
            self._signature, self._encoded = signature, named_structure(structure_of(root))
        return self._encoded


def _sign(node: Node, out: list[typing.Any]) -> None:
    out.append((node.kind, node.name, len(node.children)))
    if node.kind == "array":
        out.append(_arrays.kind_of(node.value))
    elif node.kind == "alias":
        assert node.target is not None
        out.append(node.target.name)
    for key, child in node.children:
        if type(key) is int:
            out.append(key)
        _sign(child, out)


class Stored:
    """The structure of a checkpoint: that of all ranks, merged."""

    def __init__(
        self, structures: typing.Iterable[tuple[str, bytes]], values: typing.Container[str] = ()
    ) -> None:
        """
        structures: names and bytes, as `named_structure` makes them.
        values: the names of the values of the checkpoint.
        """
        self.root: Json = None
        for name, content in structures:
            try:
                tree = json.loads(content)
                tree = _of_paths(tree["dcp"]) if "dcp" in tree else tree
            except (ValueError, KeyError, TypeError) as error:
                raise Corrupt(f"'{name}' is not a structure: {error}") from None
            self.root = tree if self.root is None else _merged(self.root, tree)
        self.root = _with_own_values(_with_lists(self.root), "", values)
        self._by_name: dict[str, tuple[Json, tuple[typing.Any, ...]]] = {}
        _list_names(self.root, (), self._by_name)

    @staticmethod
    def flat(kinds: dict[str, str]) -> "Stored":
        """Of a checkpoint that a program in C++ has saved: names without containers."""
        stored = Stored([])
        stored.root = {"dict": kinds}
        stored._by_name = {name: (kind, (name,)) for name, kind in kinds.items()}
        return stored

    def find(self, name: str) -> Json:
        """The node of a name; None if there is none."""
        return self._by_name.get(name, (None, ()))[0]

    def paths(self) -> dict[str, tuple[typing.Any, ...]]:
        """The keys that lead to each leaf, by its name. As in DCP, a number is the index of a list, and the
        key of a dict is a text."""
        return {
            name: path
            for name, (node, path) in self._by_name.items()
            if isinstance(node, str) or (isinstance(node, dict) and "alias" in node)
        }

    def containers(self) -> list[str]:
        """The names of the containers, other than the whole state."""
        return [
            name
            for name, (node, path) in self._by_name.items()
            if path and isinstance(node, dict) and "alias" not in node
        ]

    def tensors(self) -> set[str]:
        """The names of the tensors of torch."""
        return {name for name, (node, _) in self._by_name.items() if node == "torch"}

    def aliases(self) -> dict[str, str]:
        """By the name of each alias, the name under which the checkpoint has its value."""
        return {
            name: node["alias"]
            for name, (node, _) in self._by_name.items()
            if isinstance(node, dict) and "alias" in node
        }


def _of_paths(paths: dict[str, Json]) -> Json:
    """A structure of the flat names that DCP's planner makes: each with its path and kind."""
    root: dict[typing.Any, typing.Any] = {}
    for path, kind in paths.values():
        node = root
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = kind

    def as_items(node: typing.Any) -> Json:
        if not isinstance(node, dict):
            return node
        return {"items": [[key, as_items(child)] for key, child in node.items()], "made": True}

    return as_items(root)


def _with_lists(node: Json) -> Json:
    """Replaces containers made of paths whose keys are 0, 1, 2, ... by lists, as DCP does."""
    if not isinstance(node, dict) or "made" not in node:
        return node
    items = [[key, _with_lists(child)] for key, child in node["items"]]
    if items and all(type(key) is int for key, _ in items):
        items.sort(key=lambda item: item[0])
        if [key for key, _ in items] == list(range(len(items))):
            return {"list": [child for _, child in items]}
    return {"items": items}


def _with_own_values(node: Json, name: str, values: typing.Container[str]) -> Json:
    """Replaces aliases whose name has a value: only some ranks had the same memory under both names, such as
    a rank that has no element of either."""
    if not isinstance(node, dict):
        return node
    if "alias" in node:
        return node["kind"] if name in values else node
    prefix = name + "." if name else ""
    children = [(key, _with_own_values(child, f"{prefix}{key}", values)) for key, child in _children(node)]
    if "dict" in node:
        return {"dict": dict(children)}
    if "items" in node:
        return {"items": [[key, child] for key, child in children]}
    return {kind: [child for _, child in children] for kind in ("list", "tuple") if kind in node}


def _children(node: Json) -> list[tuple[typing.Any, Json]]:
    if not isinstance(node, dict):
        return []
    if "dict" in node:
        return list(node["dict"].items())
    if "items" in node:
        return [(key, child) for key, child in node["items"]]
    for kind in ("list", "tuple"):
        if kind in node:
            return list(enumerate(node[kind]))
    return []


def _list_names(node: Json, path: tuple[typing.Any, ...], out: dict[str, tuple[Json, typing.Any]]) -> None:
    name = ".".join(map(str, path))
    is_container = isinstance(node, dict) and "alias" not in node
    if not is_container or name not in out:  # {"a.b": 1, "a": {"b": {}}}: the leaf has the name
        out[name] = node, path
    is_list = is_container and ("list" in node or "tuple" in node)
    for key, child in _children(node):
        _list_names(child, (*path, key if is_list else str(key)), out)


def _merged(a: Json, b: Json) -> Json:
    """All that either has; what both have in different ways is that of `a`, or an alias: to a rank that has
    no element of an array, an alias may look like an array of its own. Of an array, the kind is that of a
    rank that holds a part."""
    of_a, of_b = dict(_children(a)), dict(_children(b))
    if isinstance(a, str) and isinstance(b, dict) and "alias" in b:
        return b
    if a == _arrays.UNHELD and isinstance(b, str):
        return b
    if a == b or not of_b or not isinstance(a, dict):
        return a
    keys = [*of_a, *(key for key in of_b if key not in of_a)]
    children = [
        [key, _merged(of_a[key], of_b[key]) if key in of_a and key in of_b else of_a.get(key, of_b.get(key))]
        for key in keys
    ]
    for kind in ("list", "tuple"):
        if kind in a:
            return {kind: [child for _, child in children]}
    return {"items": children, "made": True} if "made" in a else {"items": children}


# ---- loading ----


def stored_as_objects(nested: list[Node], stored: Stored) -> list[Node]:
    """The outermost containers of a Walker which the checkpoint has as one object, as DCP stores a tuple."""
    found: list[Node] = []
    for node in nested:
        if stored.find(node.name) == "object" and not any(
            node.name.startswith(f"{outer.name}.") for outer in found
        ):
            found.append(node)
    return found


class Pending:
    """What a load is to fill: a State of the client, with the nodes of its slots."""

    def __init__(self, world: typing.Any, rank: int, allow_pickle: bool) -> None:
        self.state = _client.State()
        self.world = world
        self.rank = rank
        self.allow_pickle = allow_pickle
        self._slots: list[Node] = []
        self._arrays: list[Node] = []
        self._added: set[str] = set()
        self._later: list[tuple[Node, str]] = []

    def add(self, node: Node, name: str | None = None) -> None:
        """Adds a leaf, to be filled from the value of that name, by default its own."""
        name = node.name if name is None else name
        if node.kind == "array":
            if node.array is None:
                return
            if name in self._added:
                self._later.append((node, name))
                return
            self._added.add(name)
            node.array.add_to(self.state, name, self.world, False, True)
            self._arrays.append(node)
        elif node.kind != "alias":
            node.slot = self.state.add_slot(name, None if node.kind == "per_rank" else self.world)
            self._slots.append(node)

    def finish(self, missing: typing.Container[str]) -> None:
        """After the client has filled the state, but for the names in `missing`."""
        for node in self._arrays:
            if node.array is not None and node.array.finish and node.name not in missing:
                node.array.finish()
        for node in self._slots:
            if node.name in missing or f"{node.name}@rank{self.rank}" in missing:
                continue
            assert node.slot is not None
            node.loaded = _values.decode(self.state.slot(node.slot), node.name, self.allow_pickle)

    def rest(self) -> "Pending | None":
        """A State has each name once: what further arrays are to be filled from the same values, if any."""
        if not self._later:
            return None
        rest = Pending(self.world, self.rank, self.allow_pickle)
        for node, name in self._later:
            rest.add(node, name)
        return rest


def is_skipped(policies: typing.Mapping[str, str], name: str) -> bool:
    """Whether the policy of a name, that of the smallest subtree with it, is "skip"."""
    while name and name not in policies:
        name = name.rpartition(".")[0]
    return policies.get(name) == "skip"


def rebuild(node: Node) -> typing.Any:
    """The value of a node after a load. Containers and arrays keep their identity; tuples cannot."""
    if node.loaded is not NOTHING:
        if node.kind != "per_rank":
            return node.loaded
        return _put_per_rank(node)
    if node.kind == "dict" or node.kind == "list":
        for key, child in node.children:
            value = rebuild(child)
            if value is not child.value:
                node.value[key] = value
        return node.value
    if node.kind == "tuple":
        values = tuple(rebuild(child) for _, child in node.children)
        return node.value if all(a is b for a, b in zip(values, node.value)) else values
    if node.kind == "stateful":
        node.value.load_state_dict(rebuild(node.children[0][1]))
        return node.value
    if node.kind == "replicated":
        node.value.value = rebuild(node.children[0][1])
        return node.value
    if node.kind == "array" and isinstance(node.value, np.generic) and node.array is not None:
        return typing.cast("np.ndarray", node.array.owner)[()]
    return node.value


def _put_per_rank(node: Node) -> PerRank:
    wrapper = typing.cast(PerRank, node.value)
    wrapper.value = put(wrapper.value, node.loaded)
    return wrapper


def fits(target: typing.Any, value: typing.Any) -> bool:
    """Whether `put` fills all arrays of the target, and keeps its containers."""
    if isinstance(target, dict):
        same = isinstance(value, dict) and target.keys() == value.keys()
        return same and all(fits(each, value[key]) for key, each in target.items())
    if type(target) in (list, tuple):
        same = type(value) is type(target) and len(value) == len(target)
        return same and all(map(fits, target, value))
    if _arrays.is_array(target):
        same = _arrays.is_array(value) and tuple(target.shape) == tuple(value.shape)
        return same and target.dtype == value.dtype
    return is_stateful(target) or not (isinstance(value, (dict, list, tuple)) or _arrays.is_array(value))


def put(target: typing.Any, value: typing.Any) -> typing.Any:
    """Puts a loaded value into what the caller has, and returns what belongs in its place."""
    if is_stateful(target):
        target.load_state_dict(value)
        return target
    if isinstance(target, dict) and isinstance(value, dict):
        for key, each in value.items():
            target[key] = put(target[key], each) if key in target else each
        return target
    if type(target) is list and type(value) is list:
        target[:] = [put(old, new) for old, new in zip(target, value)] + value[len(target) :]
        return target
    if type(target) is tuple and type(value) is tuple and len(target) == len(value):
        return tuple(map(put, target, value))
    if _arrays.is_array(target) and _arrays.is_array(value) and not isinstance(target, np.generic):
        if tuple(target.shape) == tuple(value.shape) and target.dtype == value.dtype:
            if isinstance(target, np.ndarray):
                np.copyto(target, value)
            else:
                target.detach().copy_(value)
            return target
    if _is_of_jax(target) and _arrays.is_array(value):
        return _arrays.on_devices_of(target, value)
    return value


def whole(node: Json, name: str, pending: Pending, reader: typing.Any, make: dict[str, Node]) -> Node | None:
    """A Node that a load fills with the whole of a stored subtree. None: this rank has nothing of it."""
    if isinstance(node, dict) and "alias" in node:
        source = make.get(node["alias"]) or whole(node["kind"], node["alias"], pending, reader, make)
        alias = Node("alias", name, None)
        alias.target = source
        return alias
    if isinstance(node, dict):  # not in `make`, even if a leaf has the same name
        kind = "dict" if "items" in node else next(iter(node))
        out = Node(kind, name, {} if kind == "dict" else [])
        for key, child in _children(node):
            made = whole(child, f"{name}.{key}" if name else str(key), pending, reader, make)
            if made is not None:
                out.children.append((key, made))
        return out
    if name in make:
        return make[name]
    leaf = Node(node if node in ("object", "per_rank") else "array", name, None)
    if node == "per_rank":
        if f"{name}@rank{pending.rank}" not in reader:
            return None
    elif name not in reader:
        return None
    elif leaf.kind == "array":
        dtype, shape = reader.about(name)
        leaf.value = _arrays.new_array(node, dtype, shape, name)
        leaf.array = _arrays.describe(leaf.value, name, 0, writable=True)
    make[name] = leaf
    pending.add(leaf)
    return leaf


def states_of_optimizers(statefuls: list[Node]) -> dict[str, Node]:
    """By name, the states of the parameters of each optimizer among the objects of a Walker, if any."""
    found: dict[str, Node] = {}
    for node in statefuls:
        content = node.children[0][1]
        if is_optimizer(node.value) and content.kind == "dict":
            found.update({each.name: each for key, each in content.children if key == "state"})
    # A policy must apply to a value.
    return {name: node for name, node in found.items() if node.kind == "dict" and any(_leaves(node))}


def shared_by_stages(structures: list[tuple[str, bytes]], optimizers: list[str]) -> str | None:
    """The name of a tensor that two ranks have in the state of an optimizer, while each has tensors that the
    other lacks. They are stages of a pipeline, whose optimizers number their parameters from 0: one of two
    such tensors is lost. None: no name is that of two values, as far as one can tell."""
    beginnings = tuple(f"{name}.state." for name in optimizers)
    of_ranks = []
    for each in structures:
        tensors = Stored([each]).tensors()
        numbered = {name for name in tensors if name.startswith(beginnings)}
        of_ranks.append((numbered, tensors - numbered))
    for i, (numbered, others) in enumerate(of_ranks):
        for numbered_too, others_too in of_ranks[:i]:
            shared = numbered & numbered_too
            if shared and others - others_too and others_too - others:
                return min(shared)
    return None


def drop_missing(states: Node, missing: typing.Container[str]) -> tuple[int, list[str]]:
    """Takes those parameters out of the states of an optimizer of which a checkpoint has no value: in their
    place load_state_dict leaves none, as it did when the checkpoint was saved. Returns how many they are, and
    the missing values of those parameters that the checkpoint has in part."""
    kept: list[tuple[typing.Any, Node]] = []
    in_part: list[str] = []
    for key, parameter in states.children:
        lacks = [leaf.name in missing for leaf in _leaves(parameter)]
        if lacks and all(lacks):
            del states.value[key]
            continue
        kept.append((key, parameter))
        in_part += [leaf.name for leaf in _leaves(parameter) if leaf.name in missing]
    dropped = len(states.children) - len(kept)
    states.children = kept
    return dropped, in_part


def _leaves(node: Node) -> typing.Iterator[Node]:
    if not node.children and node.kind not in ("dict", "list", "tuple"):
        yield node
    for _, child in node.children:
        yield from _leaves(child)


def leaves_of_optimizer(
    optimizer: Node, walker: Walker, pending: Pending, reader: typing.Any, unexpected: typing.Iterable[str]
) -> dict[str, Node]:
    """By name, what `whole` is to use for an optimizer: leaves that are loaded already, and new ones where a
    parameter is a DTensor, which are sharded as it is."""
    from . import _tensors

    prefix = optimizer.name + "."
    made = {
        leaf.name: leaf
        for leaf in walker.leaves
        if leaf.name.startswith(prefix) and (leaf.array is not None or leaf.loaded is not NOTHING)
    }
    for name in unexpected:
        if name.startswith(prefix) and reader.is_array(name):
            like = _tensors.state_like_parameter(optimizer.value, name[len(prefix) :], *reader.about(name))
            if like is not None:
                made[name] = leaf = Node("array", name, like)
                leaf.array = _arrays.describe(like, name, walker.rank, writable=True)
                pending.add(leaf)
    return made


def with_missing(node: Node, value: typing.Any) -> typing.Any:
    """Adds to a loaded value what the checkpoint lacks, as policies may allow."""
    if node.kind == "dict" and isinstance(value, dict):
        for key, child in node.children:
            value[key] = with_missing(child, value[key]) if key in value else rebuild(child)
    return value


def value_of_whole(node: Node, structure: Json) -> typing.Any:
    """The value of what `whole` has made, once it is loaded."""
    if node.kind == "alias":
        assert node.target is not None
        return value_of_whole(node.target, structure["kind"])
    if node.kind in ("object", "per_rank"):
        return node.loaded
    if node.kind == "array":
        return node.value[()] if structure == "scalar" else node.value
    children = dict(_children(structure))
    values = [(key, value_of_whole(child, children[key])) for key, child in node.children]
    if node.kind == "dict":
        return dict(values)
    listed = [value for _, value in values]
    return listed if node.kind == "list" else tuple(listed)
