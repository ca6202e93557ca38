"""JAX arrays under any sharding: save and load pytrees, several devices a process.

    import shoal, shoal.jax

    ck = shoal.Checkpointer("/checkpoints/run7")
    handle = shoal.jax.save(ck, step, {"params": params, "opt": opt_state})
    state = shoal.jax.load(ck, "latest", like={"params": params, "opt": opt_state})

Each process writes shards of the devices that it addresses. A shard that devices of several processes hold is
written once: every process computes from the shardings which of them writes it, so that their bytes are even,
and calls no collective. A load reads what the devices of this process need under the sharding of `like`,
whatever the sharding and the number of processes of the save.
"""

from __future__ import annotations

import math
import typing

import jax
import numpy as np
from jax.extend.core.primitives import convert_element_type_p

from . import _arguments, _arrays, _tree
from ._checkpointer import Checkpointer
from ._errors import InvalidArgument
from ._handle import SaveHandle
from ._wrappers import PerRank

__all__ = ["load", "save"]

Box = tuple[tuple[int, ...], tuple[int, ...]]  # offsets and sizes


def save(
    checkpointer: Checkpointer,
    step: int,
    state: typing.Any,
    *,
    metadata: typing.Mapping[str, str] | None = None,
) -> SaveHandle:
    """Copies a pytree and returns; the node then writes it, and the checkpoint is committed.

    The arrays may be donated as soon as save has returned. Every process of the job calls save with a state
    of the same structure and shardings. The name of a leaf is its path, joined with dots, as in
    params.dense.kernel; elements of sequences have their index. Leaves are jax.Arrays, and all that
    Checkpointer.save accepts. In a job of several processes an array that is on devices of one process
    alone is a plain value of the whole job: one process writes it. Wrap it in shoal.per_rank if it differs
    between processes.

    checkpointer: its rank must be jax.process_index(), in a job of several processes.
    metadata: text that is stored with the checkpoint; equal on all processes.

    Raises InvalidArgument for a leaf that cannot be saved, such as a key array, and EarlierSaveFailed as
    Checkpointer.save does. Blocks until the arrays are computed and copied. Any thread may call it.
    """
    _check_process(checkpointer)
    number = _arguments.step_to_save(step)
    with checkpointer._lock:
        with checkpointer._describing(number):
            texts = _arguments.texts(metadata, "metadata")
            tree, _, _ = _nested(state)
            walker = _Walker(checkpointer._rank, False, checkpointer._allow_pickle)
            root = walker.walk_all(tree)
            packed, _ = checkpointer._state_of(root, walker.leaves, checkpointer._allow_pickle)
        return checkpointer._submit(number, packed, texts)


def load(
    checkpointer: Checkpointer,
    step: int | typing.Literal["latest"],
    like: typing.Any,
    *,
    policies: typing.Mapping[str, str] | None = None,
    fallback: typing.Literal["none", "previous"] | None = None,
) -> typing.Any:
    """Loads a checkpoint as a pytree of the structure of `like`, and returns it.

    A leaf of `like` that is a jax.Array or a jax.ShapeDtypeStruct gives shape, dtype and sharding of a new
    jax.Array; a ShapeDtypeStruct without a sharding gives an array on the default device. Its shape and dtype
    must be those of the checkpoint. The arrays in `like` are not changed, and may be deleted before. numpy
    arrays are filled in place; other values are replaced by those of the checkpoint. A leaf whose name the
    checkpoint lacks keeps its value where `policies` allow that.

    policies, fallback: as for Checkpointer.load.

    Host memory holds one copy of what the devices of this process get. Raises NotFound if the root has no
    such checkpoint, and KeyMismatch if names, shapes or types differ. Any thread may call it.
    """
    _check_process(checkpointer)
    wanted, settled = _arguments.step_to_load(step), _arguments.texts(policies, "policies")
    with checkpointer._lock:
        tree, paths, treedef = _nested(like)
        walker = _Walker(checkpointer._rank, True, checkpointer._allow_pickle)
        root = walker.walk_all(tree)
        result = checkpointer._load_leaves(
            walker, wanted, settled, fallback, "automatic", checkpointer._allow_pickle
        )
        missing = walker.skipped.union(result.report.missing)
        for node in walker.leaves:  # also those inside of a leaf, such as an object with state_dict
            if id(node) in walker.targets:
                node.loaded = _loaded(node, walker, missing)
        leaves = [_tree.rebuild(node) for node in _nodes(root, paths)]
        return jax.tree_util.tree_unflatten(treedef, leaves)


def _check_process(checkpointer: Checkpointer) -> None:
    if jax.process_count() == 1 or checkpointer.rank == jax.process_index():
        return
    raise InvalidArgument(
        f"the Checkpointer has rank {checkpointer.rank} in process {jax.process_index()} of "
        "JAX: open it with rank=jax.process_index(), "
        "world_size=jax.process_count() and a job_id that all processes share"
    )


# ---- pytrees ----


def _key_of(entry: typing.Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            key = getattr(entry, attribute)
            if isinstance(key, (str, int)):
                return str(key)
            break
    raise InvalidArgument(f"the state has the key {entry!r}: keys must be str or int")


def _nested(state: typing.Any) -> tuple[dict[str, typing.Any], list[tuple[str, ...]], typing.Any]:
    """The leaves of a pytree in nested dicts, by their paths, which are returned too, in order."""
    leaves, treedef = jax.tree_util.tree_flatten_with_path(state)
    root: dict[str, typing.Any] = {}
    paths = []
    for entries, leaf in leaves:
        path = tuple(_key_of(entry) for entry in entries)
        if not path:
            raise InvalidArgument("a state must be a container, such as a dict")
        node = root
        for key in path[:-1]:
            node = node.setdefault(key, {})
        if path[-1] in node:
            raise InvalidArgument(
                f"two values have the name '{'.'.join(path)}': one key is a number, one text"
            )
        node[path[-1]] = leaf
        paths.append(path)
    return root, paths, treedef


def _nodes(root: _tree.Node, paths: list[tuple[str, ...]]) -> typing.Iterator[_tree.Node]:
    """The nodes at the ends of paths, in order."""
    children: dict[int, dict[typing.Any, _tree.Node]] = {}  # by id of the node
    for path in paths:
        node = root
        for key in path:
            known = children.get(id(node))
            if known is None:
                known = children[id(node)] = dict(node.children)
            node = known[key]
        yield node


class _Target(typing.NamedTuple):
    """What a load makes an array of."""

    shape: tuple[int, ...]
    sharding: typing.Any
    by_box: dict[Box, np.ndarray]  # empty for a local array


class _Walker(_tree.Walker):
    """A Walker that also knows jax.Arrays, as the boxes that this process writes or needs."""

    def __init__(self, rank: int, writable: bool, allow_pickle: bool) -> None:
        super().__init__(rank, writable, allow_pickle)
        self.targets: dict[int, _Target] = {}  # by id of the node
        self.given: dict[int, typing.Any] = {}
        self._written: dict[int, int] = {}  # bytes so far, by process

    def walk(self, value: typing.Any, name: str = "", group: typing.Any = None) -> _tree.Node:
        if isinstance(value, (jax.Array, jax.ShapeDtypeStruct)):
            return self._jax_array(value, name)
        if type(value) is PerRank and not self.writable:
            return super().walk(PerRank(_on_host(value.value, name), value.required), name, group)
        return super().walk(value, name, group)

    def _jax_array(self, value: typing.Any, name: str) -> _tree.Node:
        _check_dtype(value, name)
        if not self.writable and isinstance(value, jax.ShapeDtypeStruct):
            raise InvalidArgument(f"'{name}' is a ShapeDtypeStruct, which has no data to save")
        node = _tree.Node("array", name, np.empty(0))  # the structure of the checkpoint says: numpy
        self.given[id(node)] = value
        if self.writable and jax.dtypes.canonicalize_dtype(value.dtype) != value.dtype:
            raise InvalidArgument(
                f"'{name}' has the dtype {value.dtype}, which JAX holds only with jax_enable_x64"
            )
        sharding = value.sharding or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        dtype = _arrays._TORCH_NAMES.get(np.dtype(value.dtype).name)
        if dtype is None:
            raise InvalidArgument(
                f"'{name}' has the dtype {value.dtype}, which no checkpoint can hold: convert it"
            )
        boxes = _boxes_by_device(sharding, tuple(value.shape))
        is_local = jax.process_count() > 1 and sharding.is_fully_addressable
        if self.writable:
            held = {
                box: np.empty(box[1], value.dtype)
                for device, box in boxes.items()
                if device.process_index == jax.process_index()
            }
            self.targets[id(node)] = _Target(tuple(value.shape), sharding, held)
        elif is_local:
            whole = np.ascontiguousarray(np.asarray(value)).reshape(value.shape)
            node.array = _arrays.Array(dtype, whole.shape, whole.ctypes.data, whole, None)
            return self._leaf(node)
        else:
            held = self._shards_to_write(value, boxes)
        node.array = _arrays.Array(
            dtype,
            tuple(value.shape),
            0,
            held,
            None,
            boxes=[(list(at), list(sizes), data.ctypes.data) for (at, sizes), data in held.items()],
        )
        if not held:
            node.array = None
        return self._leaf(node)

    def _shards_to_write(self, value: typing.Any, boxes: dict[typing.Any, Box]) -> dict[Box, np.ndarray]:
        """Assigns each box to the process, among those that hold it, which has the fewest bytes so far. All
        processes see the same arrays in the same order, and so come to the same assignment."""
        holders: dict[Box, set[int]] = {}
        for device, box in boxes.items():
            holders.setdefault(box, set()).add(device.process_index)
        mine = set()
        for box in sorted(holders):
            writer = min(holders[box], key=lambda process: (self._written.get(process, 0), process))
            size = math.prod(box[1]) * value.dtype.itemsize
            self._written[writer] = self._written.get(writer, 0) + size
            if writer == jax.process_index():
                mine.add(box)
        held: dict[Box, np.ndarray] = {}
        for shard in value.addressable_shards:
            box = boxes[shard.device]
            if box in mine and box not in held:
                held[box] = np.ascontiguousarray(np.asarray(shard.data)).reshape(box[1])
        return held


def _check_dtype(value: typing.Any, name: str) -> None:
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        raise InvalidArgument(
            f"'{name}' has the dtype {value.dtype}, which no checkpoint can hold: save "
            "jax.random.key_data(key), and use jax.random.wrap_key_data after a load"
        )


def _on_host(value: typing.Any, name: str) -> typing.Any:
    """What a per_rank value holds, with numpy arrays instead of those of JAX."""
    if isinstance(value, dict):
        return {key: _on_host(each, name) for key, each in value.items()}
    if type(value) is list or type(value) is tuple:
        return type(value)(_on_host(each, name) for each in value)
    if not isinstance(value, jax.Array):
        return value
    _check_dtype(value, name)
    if not value.is_fully_addressable:
        raise InvalidArgument(
            f"the per_rank value '{name}' has an array on devices of other processes: it is no value of one "
            "process"
        )
    return np.asarray(value)


def _boxes_by_device(sharding: typing.Any, shape: tuple[int, ...]) -> dict[typing.Any, Box]:
    boxes = {}
    for device, index in sharding.devices_indices_map(shape).items():
        ranges = [slice_.indices(size) for slice_, size in zip(index, shape)]
        offsets = tuple(begin for begin, _, _ in ranges)
        boxes[device] = (offsets, tuple(end - begin for begin, end, _ in ranges))
    return boxes


def _loaded(node: _tree.Node, walker: _Walker, missing: set[str]) -> typing.Any:
    given = walker.given[id(node)]
    if node.name in missing:
        return given
    array = _new_array(given, walker.targets[id(node)])
    return _weak(array) if given.weak_type and array.addressable_shards else array


def _new_array(given: typing.Any, target: _Target) -> jax.Array:
    is_placed = given.committed if isinstance(given, jax.Array) else given.sharding is not None
    if not is_placed:  # jit may move it to where the other arguments are
        (whole,) = target.by_box.values()
        return jax.device_put(whole)
    arrays = []
    for device, box in _boxes_by_device(target.sharding, target.shape).items():
        if device.process_index == jax.process_index():
            place = jax.sharding.SingleDeviceSharding(device, memory_kind=target.sharding.memory_kind)
            arrays.append(jax.device_put(target.by_box[box], place))
    return jax.make_array_from_single_device_arrays(
        target.shape, target.sharding, arrays, dtype=given.dtype
    )


def _weak(array: jax.Array) -> jax.Array:
    """The same array with a weak type, as Python numbers and jnp.full have: it takes on the dtype of what it
    is combined with, and a jit that was compiled for it is not compiled again."""
    return convert_element_type_p.bind(array, new_dtype=array.dtype, weak_type=True, sharding=None)
