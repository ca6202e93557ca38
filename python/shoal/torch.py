"""The calls of torch.distributed.checkpoint (DCP), over Shoal.

`save`, `async_save` and `load` have DCP's signatures and call no collective. `StorageWriter` and
`StorageReader` serve DCP's own `save`, `async_save` and `load` with DCP's planners, which call collectives.

A checkpoint_id is a path whose last part is the number of a step: "/checkpoints/run7/step-100" is step 100 of
the root "/checkpoints/run7". That part is the number alone, or one of the words step, global_step, iter,
iteration, epoch, checkpoint and ckpt, at most one character of "-_.=", and the number. Any other path names a
root of its own, also "/checkpoints/run7/ema-100". A save there is step 0, and each further one a new attempt
at it; a load is of the latest checkpoint. Within one process the ids of a root have one word: "epoch-3" after
"step-3" would be the same checkpoint, and is rejected.

"s3://bucket/run7/step-100" is step 100 of the root "s3://bucket/run7". The name of a bucket has no step:
"s3://bucket-2024" is a root.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import io
import logging
import math
import operator
import os
import re
import threading
import typing

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItemType,
)
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse
from torch.distributed.checkpoint.storage import StorageReader as _DcpReader
from torch.distributed.checkpoint.storage import StorageWriter as _DcpWriter
from torch.distributed.checkpoint.storage import WriteResult

from . import _arguments, _arrays, _checkpointer, _client, _errors, _program, _tensors
from . import _tree, _wrappers
from ._checkpointer import Checkpointer
from ._errors import InvalidArgument, NotFound, Refused
from ._handle import SaveHandle
from ._wrappers import Boxes

__all__ = [
    "AsyncSave",
    "StorageReader",
    "StorageWriter",
    "async_save",
    "checkpointer",
    "export_dcp",
    "flat_shard",
    "import_dcp",
    "load",
    "save",
]

logger = logging.getLogger("shoal")

CheckpointId = typing.Union[str, "os.PathLike[str]", None]

_lock = threading.Lock()
_by_root: dict[str, Checkpointer] = {}


def checkpointer(root: str | os.PathLike[str], **options: typing.Any) -> Checkpointer:
    """The Checkpointer of this process for a root. If the process has none, the call opens one, with these
    options; it is closed at the latest when the process ends."""
    key = _arguments.root(root, "root")
    with _lock:
        opened = _opened(key)
        if opened is None:
            if not _arguments.is_in_object_store(key):
                with _errors.of_system(f"create the root {key}"):
                    os.makedirs(key, exist_ok=True)
            opened = _by_root[key] = Checkpointer(key, **options)
        return opened


def _opened(key: str) -> Checkpointer | None:
    """The open Checkpointer of a root: that of an earlier call, or one that the program has opened."""
    known = _by_root.get(key)
    if known is not None and not known._is_closed:
        return known
    found = _checkpointer.open_in_this_process(key)
    return found[0] if len(found) == 1 else None


def _to_read(root: str) -> Checkpointer:
    """The Checkpointer of a root that exists. To open one makes a root of any path, which a load must not."""
    key = _arguments.root(root, "root")
    with _lock:
        is_open = _opened(key) is not None
    if not is_open and _arguments.is_in_object_store(key):
        why = _program.why_not_found(key)
        if why:
            raise NotFound(f"{why}: pass the path of a save")
    elif not is_open:
        if not os.path.isdir(key):
            raise NotFound(f"{key} does not exist, so it has no checkpoint: pass the path of a save")
        if not os.path.lexists(os.path.join(key, "ROOT_ID")):
            raise NotFound(
                f"{key} is a folder, but no root of Shoal (it has no ROOT_ID): pass the path of a save, or "
                "import a folder of DCP with shoal.torch.import_dcp"
            )
    return checkpointer(key)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)

_STEP = re.compile(
    r"(?:(step|global_step|iter|iteration|epoch|checkpoint|ckpt)[-_.=]?)?([0-9]+)", re.IGNORECASE
)
_words: dict[str, str] = {}  # by root: the word before the numbers of its steps


def _split(checkpoint_id: CheckpointId) -> tuple[str, int | None]:
    """The root and the step of a checkpoint_id."""
    root, _, step = _parts(checkpoint_id)
    return root, step


def _parts(checkpoint_id: CheckpointId) -> tuple[str, str, int | None]:
    """The root, the word before the number of the step, and the step of a checkpoint_id."""
    if checkpoint_id is None:
        raise InvalidArgument(
            "checkpoint_id is not given: Shoal needs a path such as '/checkpoints/run7/step-100'"
        )
    path = _arguments.root(checkpoint_id, "checkpoint_id")
    above = _arguments.parent_root(path)
    found = _STEP.fullmatch(os.path.basename(path))
    if above is None or found is None:
        return path, "", None
    return above, (found.group(1) or "").lower(), int(found.group(2))


def _to_load(checkpoint_id: CheckpointId) -> tuple[str, int | typing.Literal["latest"]]:
    """What to load: see the top of this file."""
    root, word, step = _parts(checkpoint_id)
    with _lock:
        known = _words.setdefault(root, word) if word else word
    if known != word:
        raise InvalidArgument(
            f"checkpoint_id is {str(checkpoint_id)!r}, but this process has named steps of {root} with "
            f"the word '{known}': both would be step {step} of one root. Use one word for a root, and a "
            f"folder of its own for another series, such as {root}/{word}/{step}"
        )
    return root, "latest" if step is None else step


def _root_and_step(checkpoint_id: CheckpointId) -> tuple[str, int]:
    """Where to save: see the top of this file."""
    root, step = _to_load(checkpoint_id)
    return root, 0 if step == "latest" else step


def _reject(**given: typing.Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidArgument(
                f"shoal.torch takes no {name}: to use one, call torch.distributed.checkpoint with "
                "shoal.torch.StorageWriter or StorageReader"
            )


def _check_no_dist(no_dist: bool, root: str) -> None:
    """Rejects no_dist on one of several ranks: its save would wait for the others."""
    if not no_dist:
        return
    opened = _opened(root)
    size = _launched_ranks() if opened is None else opened.world_size
    if size > 1:
        raise InvalidArgument(
            f"no_dist=True is for a process that saves alone, but this is one of {size} ranks, and a save "
            "waits for all of them. Call save on every rank without no_dist, which calls no collective "
            f"either; or call shoal.torch.checkpointer({root!r}, rank=0, world_size=1, job_id=...) first in "
            "the one process that saves, with a job id of its own for each run"
        )


def _launched_ranks() -> int:
    """How many ranks a Checkpointer will find that is opened without options."""
    # The job id does not matter, and may not exist yet where a process group is to pass it on.
    found = _client.Options.from_environment({"SHOAL_ROOT": "/", "SHOAL_JOB_ID": "any"}).world_size
    dist = torch.distributed
    if found == 1 and dist.is_available() and dist.is_initialized() and dist.get_backend() != "fake":
        return int(dist.get_world_size())
    return int(found)


class AsyncSave(AsyncSaveResponse):
    """A save in flight. `staging_completion` is done when async_save returns; `upload_completion` when the
    checkpoint is committed. It also has the methods of the Future that DCP's async_save returns."""

    def __init__(self, handle: SaveHandle) -> None:
        staged: "concurrent.futures.Future[None]" = concurrent.futures.Future()
        staged.set_result(None)
        uploaded: "concurrent.futures.Future[typing.Any]" = concurrent.futures.Future()
        uploaded.set_running_or_notify_cancel()
        super().__init__(staging_completion=staged, upload_completion=uploaded)
        self.handle = handle
        handle.add_done_callback(self._finish)

    def _finish(self, handle: SaveHandle) -> None:
        error = handle.exception()
        if error is not None:
            logger.error(
                "the save of step %d failed: %s", handle.step, error
            )  # nobody may look at the future
            self.upload_completion.set_exception(error)
        else:
            self.upload_completion.set_result(typing.cast(typing.Any, handle.committed(0)))

    def result(self, timeout: float | None = None) -> typing.Any:
        return self.handle.committed(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self.upload_completion.exception(timeout)

    def done(self) -> bool:
        return self.handle.done()

    def add_done_callback(self, callback: typing.Callable[[typing.Any], object]) -> None:
        self.upload_completion.add_done_callback(callback)


def save(
    state_dict: dict[str, typing.Any],
    *,
    checkpoint_id: CheckpointId = None,
    storage_writer: typing.Any = None,
    planner: typing.Any = None,
    process_group: typing.Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> _client.Metadata:
    """Saves a state and waits until the checkpoint is committed. Calls no collective, whatever
    use_collectives says. DTensors are described by their device_mesh and placements. no_dist=True is rejected
    in a job of several ranks, because all of them save."""
    _reject(storage_writer=storage_writer, planner=planner, process_group=process_group)
    root, step = _root_and_step(checkpoint_id)
    _check_no_dist(no_dist, root)
    return checkpointer(root).save(step, state_dict).committed()


def async_save(
    state_dict: dict[str, typing.Any],
    *,
    checkpoint_id: CheckpointId = None,
    storage_writer: typing.Any = None,
    planner: typing.Any = None,
    process_group: typing.Any = None,
    async_checkpointer_type: typing.Any = None,
    async_stager: typing.Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> AsyncSave:
    """Copies a state and returns. The state may change as soon as this call has returned. no_dist is as in
    save."""
    _reject(
        storage_writer=storage_writer, planner=planner, process_group=process_group, async_stager=async_stager
    )
    root, step = _root_and_step(checkpoint_id)
    _check_no_dist(no_dist, root)
    return AsyncSave(checkpointer(root).save(step, state_dict))


def load(
    state_dict: dict[str, typing.Any],
    *,
    checkpoint_id: CheckpointId = None,
    storage_reader: typing.Any = None,
    planner: typing.Any = None,
    process_group: typing.Any = None,
    no_dist: bool = False,
) -> None:
    """Fills a state in place. It may have another sharding and another number of ranks than the one saved.

    planner: None, or DefaultLoadPlanner(allow_partial_load=True), which leaves values as they are that the
    checkpoint lacks."""
    partial = _is_default_planner(planner)
    _reject(storage_reader=storage_reader, planner=None if partial else planner, process_group=process_group)
    root, step = _to_load(checkpoint_id)
    policies = {"": "lenient"} if partial and planner.allow_partial_load else None
    _to_read(root).load(step, into=state_dict, policies=policies)


def _is_default_planner(planner: typing.Any) -> bool:
    """Whether it is DCP's own planner with no other option than allow_partial_load."""
    return (
        type(planner) is DefaultLoadPlanner and planner.flatten_state_dict and planner.flatten_sharded_tensors
    )


def flat_shard(flat: torch.Tensor, shape: typing.Sequence[int], begin: int = 0) -> Boxes:
    """Describes a part of a flattened tensor, such as FSDP1 and Megatron's distributed optimizer keep: `flat`
    has the elements from number `begin` on of a tensor of that shape, in row-major order.

    ``{"model": {"wte.weight": shoal.torch.flat_shard(shard, (50257, 768), begin=shard_begin)}}``

    It is a value of a state. A save reads `flat`, and a load fills it. The checkpoint has the whole tensor,
    which any other sharding loads. A rank without elements passes an empty tensor.
    """
    if not isinstance(flat, torch.Tensor) or flat.ndim != 1 or not flat.is_contiguous():
        raise InvalidArgument("flat must be a contiguous tensor of one dimension: pass a view of the shard")
    count = math.prod(_wrappers._numbers(shape, "shape"))
    try:
        begin = operator.index(begin)
    except TypeError:
        raise InvalidArgument(f"begin={begin!r}: the number of an element is needed") from None
    if not 0 <= begin <= count - flat.numel():
        raise InvalidArgument(
            f"flat has {flat.numel()} elements from number {begin} on, but a tensor of shape {tuple(shape)} "
            f"has {count}: leave out the padding"
        )
    return _wrappers.boxes_of_flat(shape, flat.detach(), begin)


# ---- folders of DCP ----


def import_dcp(
    folder: str | os.PathLike[str],
    root: str | os.PathLike[str],
    step: int,
    *,
    allow_pickle: bool = False,
) -> _client.Metadata:
    """Saves a folder that DCP's FileSystemWriter has written as the checkpoint of a step, and waits until it
    is committed. All ranks of the job call this; each writes its part, and none waits for another.

    Tensors keep their names, shapes, dtypes and bits; the names and the nesting of the values are those of
    the state that DCP saved, so that every kind of load of Shoal reads them. The files are mapped, and the
    memory for staged bytes is what `staging_bytes_max` and `--staging-memory` allow, however large the
    folder is. A tensor that was saved with other strides than row-major ones passes through a temporary
    file. The CRC-32 of each tensor and object, which torch.save writes, is compared.

    No code in the folder runs. A pickle that names anything but the parts of DCP's format is rejected with an
    error that has the name. An object becomes JSON if that can express it; else its bytes stay as they are,
    if torch.load reads them with weights_only=True.

    allow_pickle: other objects are imported too, unread. Loading them then needs allow_pickle=True.

    Raises NotFound, Corrupt, TooLarge or InvalidArgument, with the file and the value; the same on all ranks
    for what `.metadata` and the sizes of the files show. Blocks; any thread may call it.
    """
    from ._dcp_import import import_folder

    allow_pickle = _arguments.truth(allow_pickle, "allow_pickle")
    return import_folder(folder, checkpointer(root), step, allow_pickle)


def export_dcp(
    root: str | os.PathLike[str],
    step: int | typing.Literal["latest"],
    folder: str | os.PathLike[str],
    *,
    allow_pickle: bool = False,
    timeout: float | None = 3600.0,
) -> None:
    """Writes a checkpoint as a folder that dcp.load of PyTorch reads. All ranks of the job call this with the
    same arguments; each writes one file, and rank 0 then writes `.metadata`, which makes the folder complete.
    It exists on every rank when the call returns. The ranks see each other's files in the folder, which must
    be on storage that they share; no collective is called.

    Values have the names that DCP gives to those of the same state, so that the state which was saved is one
    that dcp.load fills, with plain tensors or DTensors. The bits are the same. numpy arrays and numpy scalars
    become tensors. A value of `per_rank` is an object for each rank, named NAME@rankN. Each block that is
    read is verified against its digest. A rank holds at most 64 MiB of tensors and 64 MiB of small objects at
    a time, or one larger object, or one tuple with the tensors in it, which DCP stores as one object.

    allow_pickle: objects that Shoal stored as pickles are loaded, which can run code, to be written again.
    timeout: how many seconds to wait for other ranks.

    Raises NotFound, Corrupt (a block is damaged), AlreadyExists (the folder has a `.metadata`), IoError or
    NoSpace. An error of one rank is Aborted on the others, with the rank and the cause; DeadlineExceeded
    names a rank of which nothing was heard. After an error the folder has no `.metadata`: all ranks may call
    this again, also with the same folder. The checkpoint is not deleted meanwhile.
    """
    from ._dcp_export import export_folder

    allow_pickle = _arguments.truth(allow_pickle, "allow_pickle")
    export_folder(_to_read(_arguments.root(root, "root")), step, folder, allow_pickle, timeout)


# ---- DCP's own calls ----


class StorageWriter(_DcpWriter):
    """Writes what DCP's planner assigns to each rank, as one save of Shoal.

    ``dcp.save(state, storage_writer=shoal.torch.StorageWriter("/checkpoints/run7/step-100"))``
    """

    def __init__(self, checkpoint_id: CheckpointId = None) -> None:
        super().__init__()
        self._id = checkpoint_id
        self._handle: SaveHandle | None = None

    def reset(self, checkpoint_id: CheckpointId = None) -> None:
        if checkpoint_id is not None:
            self._id = checkpoint_id
        self._handle = None

    def set_up_storage_writer(self, is_coordinator: bool, *args: typing.Any, **kwargs: typing.Any) -> None:
        _root_and_step(self._id)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> "torch.futures.Future[list[WriteResult]]":
        root, step = _root_and_step(self._id)
        ck = checkpointer(root)
        with ck._describing(step):
            state, results, kept = self._described(plan, planner, ck)
        self._handle = ck._submit(step, state, {})
        del kept
        done: "torch.futures.Future[list[WriteResult]]" = torch.futures.Future()
        done.set_result(results)
        return done

    @staticmethod
    def _described(
        plan: SavePlan, planner: SavePlanner, ck: Checkpointer
    ) -> tuple[typing.Any, list[WriteResult], list[torch.Tensor]]:
        """The State of a plan, its results, and what keeps the memory of the State alive."""
        state, kept, results = _client.State(), [], []
        own = _client.Mesh.from_ranks([1], [ck.rank])
        boxes: dict[str, tuple[str, tuple[int, ...], list[tuple[list[int], list[int], int]]]] = {}
        for item in plan.items:
            data = planner.resolve_data(item)
            fqn = item.index.fqn
            if item.type == WriteItemType.BYTE_IO:
                content = typing.cast(io.BytesIO, data).getvalue()
                state.add_bytes(fqn, _DCP_BYTES + content, own)
                results.append(WriteResult(item.index, len(content), None))
                continue
            tensor = _tensors._on_host(typing.cast(torch.Tensor, data))
            kept.append(tensor)
            assert item.tensor_data is not None
            chunk = item.tensor_data.chunk
            _, _, held = boxes.setdefault(
                fqn, (_tensors.dtype_name(tensor.dtype, fqn), tuple(item.tensor_data.size), [])
            )
            held.append((list(chunk.offsets), list(chunk.sizes), tensor.data_ptr()))
            results.append(WriteResult(item.index, tensor.nbytes, None))
        for fqn, (dtype, shape, held) in boxes.items():
            state.add_boxes(fqn, _client.dtype_number(dtype), shape, held, False, False)
        name, content = _structure_of_mapping(
            plan.planner_data, {item.index.fqn: item for item in plan.items}
        )
        state.add_bytes(name, content, own)
        return state, results, kept

    def finish(self, metadata: dcp_metadata.Metadata, results: list[list[WriteResult]]) -> None:
        """The coordinator waits here until the checkpoint is committed, which is when it exists."""
        if self._handle is None:
            raise InvalidArgument("finish without write_data: this writer was not given to dcp.save")
        self._handle.committed()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True


# Marks an object that DCP's planner has written with torch.save. It is read by DCP's planner alone.
_DCP_BYTES = b"\x03"


def _structure_of_mapping(mapping: typing.Any, items: dict[str, typing.Any]) -> tuple[str, bytes]:
    """The structure of the values that this rank writes, from the paths that DCP's planner knows."""
    paths = {}
    for fqn in sorted(items):
        kind = "object" if items[fqn].type == WriteItemType.BYTE_IO else "torch"
        paths[fqn] = [list((mapping or {}).get(fqn, (fqn,))), kind]
    return _tree.named_structure({"dcp": paths})


class _Reads:
    """The tensors of a LoadPlan, as few loads: all at once, unless a plan wants the same elements twice."""

    def __init__(self, checkpoint: typing.Any) -> None:
        self._checkpoint = checkpoint
        self._passes: list[dict[str, list[tuple[list[int], list[int], torch.Tensor]]]] = [{}]
        self._finish: list[typing.Callable[[], None]] = []
        self._items: list[tuple[typing.Any, torch.Tensor]] = []

    def add(self, item: typing.Any, target: torch.Tensor) -> None:
        fqn = self._checkpoint._source(item.storage_index.fqn)
        offsets, sizes = list(item.storage_offsets), list(item.lengths)
        dtype, _ = self._checkpoint.about(fqn)
        stored = getattr(torch, _arrays._TORCH_DTYPE_NAMES[dtype])
        self._items.append((item, target))
        if target.dtype == stored:
            buffer, finish = _tensors._to_fill(target, fqn)
        else:  # DCP converts
            buffer = torch.empty(target.shape, dtype=stored, device="cpu")
            finish = functools.partial(_copy, target, buffer)
        if finish is not None:
            self._finish.append(finish)
        for boxes_of in self._passes:
            boxes = boxes_of.setdefault(fqn, [])
            if not any(_overlap((offsets, sizes), box[:2]) for box in boxes):
                boxes.append((offsets, sizes, buffer))
                return
        self._passes.append({fqn: [(offsets, sizes, buffer)]})

    def run(self) -> list[tuple[typing.Any, torch.Tensor]]:
        for boxes_of in self._passes:
            state = _client.State()
            for fqn, boxes in boxes_of.items():
                dtype, shape = self._checkpoint.about(fqn)
                addresses = [(offsets, sizes, buffer.data_ptr()) for offsets, sizes, buffer in boxes]
                state.add_boxes(fqn, _client.dtype_number(dtype), shape, addresses, True, False)
            if boxes_of:
                with self._checkpoint._checkpointer._lock:
                    self._checkpoint._reader.load(state, {"": "allow_unexpected"})
        for finish in self._finish:
            finish()
        return self._items


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    with torch.no_grad():
        target.copy_(source)


def _overlap(a: typing.Any, b: typing.Any) -> bool:
    return all(
        at < other + other_size and other < at + size
        for at, size, other, other_size in zip(a[0], a[1], b[0], b[1])
    )


class _Values(dict[str, typing.Any]):
    """The values of a checkpoint for DCP's planners. A container that DCP would have saved as one object, as
    it does a tuple with tensors, is found by its name too. It is not listed, but its values are."""

    def __init__(self, containers: typing.Iterable[str]) -> None:
        super().__init__()
        self._containers = set(containers)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._containers

    def __missing__(self, name: str) -> typing.Any:
        if name in self._containers:
            return dcp_metadata.BytesStorageMetadata()
        raise KeyError(name)


class _Opened(typing.NamedTuple):
    """Which checkpoint a LoadPlan belongs to."""

    step: int
    generation: int
    attempt: int


def _attempt(checkpoint: typing.Any) -> tuple[int, int, int]:
    about = checkpoint.metadata
    return about.step, about.generation, about.attempt


class StorageReader(_DcpReader):
    """Reads a checkpoint of Shoal for DCP's planners, whichever call has saved it.

    ``dcp.load(state, storage_reader=shoal.torch.StorageReader("/checkpoints/run7/step-100"))``

    If the id is a root, all ranks load the checkpoint that is the latest for the coordinator of dcp.load.
    """

    def __init__(self, checkpoint_id: CheckpointId = None) -> None:
        super().__init__()
        self._id = checkpoint_id
        self._open: typing.Any = None

    def reset(self, checkpoint_id: CheckpointId = None) -> None:
        if checkpoint_id is not None:
            self._id = checkpoint_id
        if self._open is not None:
            self._open.close()
        self._open = None

    def _checkpoint(self) -> typing.Any:
        if self._open is None:
            root, step = _to_load(self._id)
            self._open = _to_read(root).open(step)
        return self._open

    def read_metadata(self, *args: typing.Any, **kwargs: typing.Any) -> dcp_metadata.Metadata:
        """Each load of DCP begins with this: it opens the checkpoint that the id names now."""
        self.reset()
        checkpoint = self._checkpoint()
        structure = checkpoint.structure()
        values = _Values(structure.containers())
        paths = structure.paths()
        is_of_torch = any(structure.find(name) == "torch" for name in paths)
        for name in checkpoint.keys():
            is_object, dtype, shape = checkpoint._find(name)
            # To DCP, an array of numpy in a state of torch is an object.
            if is_object or (is_of_torch and structure.find(name) in ("numpy", "scalar")):
                values[name] = dcp_metadata.BytesStorageMetadata()
                continue
            size = torch.Size(shape)
            values[name] = dcp_metadata.TensorStorageMetadata(
                properties=dcp_metadata.TensorProperties(
                    dtype=getattr(torch, _arrays._TORCH_DTYPE_NAMES[dtype])
                ),
                size=size,
                chunks=[dcp_metadata.ChunkStorageMetadata(torch.Size([0] * len(shape)), size)],
            )
        for alias, source in structure.aliases().items():
            if alias not in values and source in values:
                values[alias] = values[source]
        planner_data = {name: tuple(path) for name, path in paths.items()}
        return dcp_metadata.Metadata(values, planner_data=planner_data)

    def set_up_storage_reader(
        self, metadata: dcp_metadata.Metadata, is_coordinator: bool, *args: typing.Any, **kwargs: typing.Any
    ) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Passes on which checkpoint this rank has opened, to which its plan belongs."""
        return dataclasses.replace(plan, storage_data=_Opened(*_attempt(self._checkpoint())))

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """On the coordinator: all ranks read the checkpoint that it has opened. A save that was committed
        meanwhile may be the latest for some of them."""
        wanted = _Opened(*_attempt(self._checkpoint()))
        return [dataclasses.replace(plan, storage_data=wanted) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> "torch.futures.Future[None]":
        checkpoint = self._checkpoint()
        if isinstance(plan.storage_data, _Opened) and plan.storage_data != _attempt(checkpoint):
            checkpoint = self._open_instead(plan, checkpoint)
        reads = _Reads(checkpoint)
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(self._object(checkpoint, item.storage_index.fqn)))
            else:
                reads.add(item, planner.resolve_tensor(item).detach())
        for item, target in reads.run():
            planner.commit_tensor(item, target)
        done: "torch.futures.Future[None]" = torch.futures.Future()
        done.set_result(None)
        return done

    def _open_instead(self, plan: LoadPlan, mine: typing.Any) -> typing.Any:
        """Opens the checkpoint of the coordinator, for which the plan of this rank must be right too."""
        wanted = typing.cast(_Opened, plan.storage_data)
        other = mine._checkpointer.open(wanted.step)
        names = {item.storage_index.fqn for item in plan.items}
        same = _attempt(other) == wanted and all(
            other._source(name) in other and other._find(name) == mine._find(name) for name in names
        )
        if not same:
            other.close()
            raise Refused(
                f"the ranks have opened different checkpoints: this one step {mine.step}, the coordinator "
                f"step {wanted.step} (g{wanted.generation}a{wanted.attempt}), which has other values. Name "
                f"the step to load: StorageReader('{mine._checkpointer.root}/{wanted.step}')"
            )
        self.reset()
        self._open = other
        return other

    @staticmethod
    def _object(checkpoint: typing.Any, fqn: str) -> bytes:
        if fqn in checkpoint and not checkpoint.is_array(fqn):
            with checkpoint._checkpointer._lock:
                content = checkpoint._reader.read(fqn)
            if content[:1] == _DCP_BYTES:
                return bytes(content[1:])
        # Saved by another call of Shoal: DCP's planner expects what torch.save has written.
        if isinstance(checkpoint.structure().find(fqn), dict) and fqn not in checkpoint:
            value = checkpoint._subtree(fqn, checkpoint._checkpointer._allow_pickle)
        else:
            value = checkpoint[fqn]
        written = io.BytesIO()
        torch.save(value, written)
        return written.getvalue()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True
