"""export_dcp: writes a checkpoint as a folder that torch.distributed.checkpoint (DCP) reads.

Each rank writes `__<rank>_0.distcp`: archives of torch.save, one after another, each with one chunk of a
tensor or one object. DCP resolves any target against chunks of any shape, so that a tensor is cut into chunks
that are small enough to hold in memory. When its file is durable, a rank publishes a list of what is in it.
The first rank waits for the lists of all ranks, writes `.metadata`, which makes the folder a checkpoint, and
removes the lists. A rank that fails publishes its error as its list, so that the others do not wait for it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import logging
import math
import os
import pickle
import re
import time
import typing

import torch
from torch.distributed.checkpoint import filesystem as dcp_filesystem
from torch.distributed.checkpoint import metadata as dcp_metadata

from . import _arguments, _arrays, _client, _errors, _tree, _values
from ._dcp_import import METADATA
from ._errors import Aborted, AlreadyExists, Corrupt, DeadlineExceeded, InvalidArgument

if typing.TYPE_CHECKING:
    from ._checkpointer import Checkpoint, Checkpointer

logger = logging.getLogger("shoal")

CHUNK_BYTES_MAX = 64 << 20  # a rank holds one chunk at a time, or several small ones of as much
GROUP_PARTS_MAX = 1024  # that are read by one request
_LIST_SUFFIX = ".shoal-export"
_LIST = re.compile(r"__\d+\.shoal-export(\.partial)?")
_LIST_POLL_S = 0.05
_POLLS_BETWEEN_LOOKS = 20  # at the lists of all ranks, instead of the next one

# Of this process, by folder: the number of calls, and the error of the last one.
_calls: "collections.Counter[str]" = collections.Counter()
_errors_before: dict[str, str] = {}

Path = tuple[typing.Any, ...]


@dataclasses.dataclass(slots=True)
class _Value:
    """A tensor, or an object (shape None), under its name in DCP."""

    fqn: str
    path: Path
    source: str  # its name in the checkpoint
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] | None = None
    tree: _tree.Json = None  # of an object that is a container here: its structure

    @property
    def item_bytes(self) -> int:
        assert self.dtype is not None
        return self.dtype.itemsize


@dataclasses.dataclass(slots=True)
class _Part:
    """What one archive holds. Of an object, offsets is None."""

    value: _Value
    offsets: tuple[int, ...] | None
    sizes: tuple[int, ...]
    bytes: int


# ---- what there is to write ----


class _Flattened:
    """The values of a checkpoint under the names that DCP's planner gives to the values of the same state."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self.values: list[_Value] = []
        self.aliases: list[tuple[_Value, str]] = []  # with the name of the tensor that it equals
        self._walk(checkpoint.structure().root, (), "", False)
        # A tensor within a tuple has no name of its own in DCP, so that nothing can be its alias.
        exported = {value.fqn for value in self.values}
        self.values += [alias for alias, source in self.aliases if source not in exported]
        self.aliases = [each for each in self.aliases if each[1] in exported]

    def _walk(self, node: _tree.Json, path: Path, name: str, of_list: bool) -> None:
        if isinstance(node, str):
            return self._leaf(node, path, name)
        if "alias" in node:
            return self._alias(node["alias"], path, name)
        is_dict = "dict" in node or "items" in node
        if not is_dict and _has_per_rank(node):
            raise InvalidArgument(
                f"'{name}' is a list or a tuple with a per_rank value, which DCP cannot name by rank: keep "
                "per_rank values in dicts"
            )
        if path and not is_dict and not _is_traversed(node):
            self.values.append(_Value(_joined(path), path, name, tree=node))
            return None
        for key, child in _tree._children(node):
            below = f"{name}.{key}" if name else str(key)
            self._walk(child, (*path, str(key) if is_dict else key), below, not is_dict)
        return None

    def _leaf(self, kind: str, path: Path, name: str) -> None:
        if kind == "per_rank":
            for each in self._checkpoint:
                rank = each.removeprefix(f"{name}@rank")
                if each != rank and rank.isdigit():
                    own = (*path[:-1], f"{path[-1]}@rank{rank}")
                    self.values.append(_Value(_joined(own), own, each))
        elif name in self._checkpoint:
            self.values.append(self._value(name, path, name))

    def _value(self, source: str, path: Path, name: str) -> _Value:
        is_object, dtype, shape = self._checkpoint._find(source)
        if is_object:
            return _Value(_joined(path), path, source)
        torch_dtype = getattr(torch, _arrays._TORCH_DTYPE_NAMES.get(dtype, dtype), None)
        if not isinstance(torch_dtype, torch.dtype):
            raise InvalidArgument(f"'{name}' has the dtype {dtype}, which this torch does not have")
        return _Value(_joined(path), path, source, torch_dtype, shape)

    def _alias(self, source: str, path: Path, name: str) -> None:
        if source in self._checkpoint:
            self.aliases.append((self._value(source, path, name), source))


def _joined(path: Path) -> str:
    return ".".join(map(str, path))


def _has_per_rank(node: _tree.Json) -> bool:
    if isinstance(node, str):
        return node == "per_rank"
    return "alias" not in node and any(_has_per_rank(child) for _, child in _tree._children(node))


def _is_traversed(node: _tree.Json) -> bool:
    """Whether DCP gives names to the elements of a list, and not one name to the whole: DCP's rule in
    torch/distributed/checkpoint/_traverse.py. A tuple is always one value."""
    if "list" not in node:
        return False
    for child in node["list"]:
        if isinstance(child, str):
            if child in ("torch", "numpy", "scalar", _arrays.UNHELD):
                return True
        elif "alias" in child or "dict" in child or "items" in child or _is_traversed(child):
            return True
    return False


def _chunks(shape: tuple[int, ...], item_bytes: int) -> typing.Iterator[tuple[Path, tuple[int, ...]]]:
    """Offsets and sizes of boxes of at most CHUNK_BYTES_MAX that cover a tensor, in row-major order."""
    if math.prod(shape) * item_bytes <= CHUNK_BYTES_MAX:
        yield (0,) * len(shape), shape
        return
    inner, dim = item_bytes, len(shape)  # bytes of one index of dimension `dim`
    while inner * shape[dim - 1] <= CHUNK_BYTES_MAX:
        dim -= 1
        inner *= shape[dim]
    dim -= 1
    step = max(1, CHUNK_BYTES_MAX // inner)
    for outer in range(math.prod(shape[:dim])):
        index, rest = [0] * dim, outer
        for i in reversed(range(dim)):
            rest, index[i] = divmod(rest, shape[i])
        for at in range(0, shape[dim], step):
            sizes = (*[1] * dim, min(step, shape[dim] - at), *shape[dim + 1 :])
            yield (*index, at, *[0] * (len(shape) - dim - 1)), sizes


def _parts(values: typing.Iterable[_Value]) -> list[_Part]:
    parts = []
    for value in values:
        if value.shape is None:
            parts.append(_Part(value, None, (), 0))
            continue
        for offsets, sizes in _chunks(value.shape, value.item_bytes):
            parts.append(_Part(value, offsets, sizes, math.prod(sizes) * value.item_bytes))
    return parts


def _share_of(parts: list[_Part], position: int, ranks: int) -> list[_Part]:
    """A run of neighbours, of about the same bytes on each rank; an object counts like a small tensor."""
    weights = [part.bytes + 4096 for part in parts]
    total, before, share = sum(weights), 0, []
    for part, weight in zip(parts, weights):
        if min((2 * before + weight) * ranks // (2 * total), ranks - 1) == position:
            share.append(part)
        before += weight
    return share


# ---- writing ----


def _container_of(checkpoint: Checkpoint, value: _Value, allow_pickle: bool) -> typing.Any:
    """The value of a list or a tuple that DCP stores as one object."""
    pending = _tree.Pending(checkpoint._checkpointer._world, checkpoint._checkpointer._position, allow_pickle)
    node = _tree.whole(value.tree, value.source, pending, checkpoint, {})
    assert node is not None
    with checkpoint._checkpointer._lock:
        checkpoint._reader.load(pending.state, {"": "allow_unexpected"})
    pending.finish(())
    return _tree.value_of_whole(node, value.tree)


def _groups(parts: list[_Part], object_bytes: int) -> typing.Iterator[list[_Part]]:
    """Neighbours that one request reads, because it costs as much as many small values. What an object holds
    is known only when it is read: `object_bytes` is the most that all of them can have."""
    group: list[_Part] = []
    sources: set[str] = set()
    held = 0
    for part in parts:
        value, is_object = part.value, part.offsets is None
        is_alone = value.tree is not None or (is_object and object_bytes > CHUNK_BYTES_MAX)
        is_full = len(group) == GROUP_PARTS_MAX or held + part.bytes > CHUNK_BYTES_MAX
        if group and (is_alone or is_full or value.source in sources):
            yield group
            group, sources, held = [], set(), 0
        if is_alone:
            yield [part]
            continue
        group.append(part)
        sources.add(value.source)
        held += part.bytes
    if group:
        yield group


def _read(checkpoint: Checkpoint, group: list[_Part]) -> list[typing.Any]:
    """A tensor or the bytes of an object for each part."""
    state = _client.State()
    contents: list[typing.Any] = []
    slots: list[tuple[int, int]] = []
    for part in group:
        value = part.value
        if part.offsets is None:
            slots.append((len(contents), state.add_slot(value.source, checkpoint._checkpointer._world)))
            contents.append(None)
            continue
        assert value.shape is not None
        chunk = torch.empty(part.sizes, dtype=value.dtype, device="cpu")
        if chunk.nbytes:
            dtype = _client.dtype_number(checkpoint._find(value.source)[1])
            box = (list(part.offsets), list(part.sizes), chunk.data_ptr())
            state.add_boxes(value.source, dtype, list(value.shape), [box], True, False)
        contents.append(chunk)
    if len(state):
        with checkpoint._checkpointer._lock:
            checkpoint._reader.read_state(state)
    for at, slot in slots:
        contents[at] = state.slot(slot)
    return contents


def _write(
    checkpoint: Checkpoint, group: list[_Part], stream: typing.IO[bytes], allow_pickle: bool
) -> typing.Iterator[_Part]:
    """Writes the archive of each part of a group, and then returns the part."""
    if group[0].value.tree is not None:
        torch.save(_container_of(checkpoint, group[0].value, allow_pickle), stream)
        yield group[0]
        return
    for part, content in zip(group, _read(checkpoint, group)):
        if part.offsets is not None:
            torch.save(content, stream)
        elif content[:1] == _values._TORCH:
            stream.write(content[1:])  # torch.save has written it: its bytes stay as they are, unread
        else:
            torch.save(_values.decode(content, part.value.source, allow_pickle), stream)
        yield part


def _list_name(position: int) -> str:
    return f"__{position}{_LIST_SUFFIX}"


def _publish(path: str, write: typing.Callable[[typing.IO[bytes]], object]) -> None:
    """Creates or replaces a file durably, all of it at once. A failure leaves nothing: what was written
    might fill a disk, so that there is no room for the list that says so."""
    try:
        with open(path + ".partial", "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(path + ".partial", path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path + ".partial")
        raise
    _sync_folder(os.path.dirname(path))


def _sync_folder(folder: str) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class _Export:
    def __init__(self, ck: Checkpointer, folder: str, timeout: float | None) -> None:
        self._ck, self._folder = ck, folder
        seconds = _arguments.timeout_s(timeout)
        self._deadline = math.inf if seconds is None else time.monotonic() + seconds
        _calls[folder] += 1
        # Earlier calls may have left lists in this folder, also calls of this job.
        self._call = [ck._client.options.job_id, ck.world_size, _calls[folder]]
        self._position = ck._position

    def run(self, checkpoint: Checkpoint, allow_pickle: bool) -> None:
        self._checkpoint, self._values = checkpoint, _Flattened(checkpoint)
        name = f"__{self._position}_0.distcp"
        rows = []

        def write(stream: typing.IO[bytes]) -> None:
            parts = _parts(self._values.values)
            tensors = {(part.value.source, part.offsets): part.bytes for part in parts}
            object_bytes = self._checkpoint.metadata.bytes - sum(tensors.values())
            share = _share_of(parts, self._position, self._ck.world_size)
            at = stream.tell()
            for group in _groups(share, object_bytes):
                for part in _write(self._checkpoint, group, stream, allow_pickle):
                    end = stream.tell()
                    rows.append([part.value.fqn, part.offsets, part.sizes, name, at, end - at])
                    at = end

        _publish(self._path(name), write)
        self._publish_list({"checkpoint": self._key, "rows": rows})
        if self._position == 0:
            self._finish()
        else:
            self._wait(self._is_complete, "rank 0", "writes .metadata")

    def prepare(self) -> None:
        os.makedirs(self._folder, exist_ok=True)
        if os.path.exists(self._path(METADATA)):
            raise AlreadyExists(
                f"{self._path(METADATA)} exists: export to another folder, or remove this one"
            )

    def fail(self, error: BaseException) -> None:
        """Publishes the error, so that the other ranks do not wait for this one."""
        _errors_before[self._folder] = text = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):  # the folder may be what cannot be written
            self._publish_list({"error": text})

    @property
    def _key(self) -> list[int]:
        about = self._checkpoint.metadata
        return [about.step, about.generation, about.attempt]

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _publish_list(self, content: dict[str, typing.Any]) -> None:
        content = {"export": self._call, "before": _errors_before.get(self._folder), **content}
        encoded = json.dumps(content).encode()
        _publish(self._path(_list_name(self._position)), lambda stream: stream.write(encoded))

    def _is_complete(self) -> bool:
        if os.path.exists(self._path(METADATA)):
            return True
        self._list_of(0)
        return False

    def _wait(self, done: typing.Callable[[], typing.Any], who: str, what: str) -> typing.Any:
        while True:
            found = done()
            if found:
                return found
            if time.monotonic() > self._deadline:
                raise DeadlineExceeded(
                    f"the export to {self._folder} waited for {who} until it {what}, in vain"
                )
            time.sleep(_LIST_POLL_S)

    def _list_of(self, position: int) -> typing.Any:
        """The rows of a rank; None if it has not published them. Raises the error of a rank that failed."""
        try:
            with open(self._path(_list_name(position)), "rb") as stream:
                found = json.load(stream)
        except FileNotFoundError:
            return None
        *job, call = found["export"]
        error = found.get("error")
        if job == self._call[:-1] and call == self._call[-1] + 1:  # it has failed, and was called again
            error = found["before"]
        elif found["export"] != self._call:
            return None
        if error is not None:
            raise Aborted(f"the export to {self._folder} failed on rank {position}: {error}")
        if found["checkpoint"] != self._key:
            raise InvalidArgument(
                f"rank {position} exports step {found['checkpoint'][0]} and rank {self._position} step "
                f"{self._key[0]}, or another attempt at it: pass the number of a step that no rank saves now"
            )
        return found["rows"] or [None]

    def _lists(self) -> typing.Iterator[typing.Any]:
        """The rows of each rank in turn, when it has published them."""
        polls = 0
        for position in range(self._ck.world_size):

            def next_list(position: int = position) -> typing.Any:
                nonlocal polls
                polls += 1
                if polls % _POLLS_BETWEEN_LOOKS == 0:
                    for later in range(position + 1, self._ck.world_size):
                        self._list_of(later)  # raises its error, if it has one
                return self._list_of(position)

            yield self._wait(next_list, f"rank {position}", "writes its file")

    def _finish(self) -> None:
        chunks: dict[str, list[typing.Any]] = {}
        storage: dict[typing.Any, typing.Any] = {}
        by_fqn = {value.fqn: value for value in self._values.values}
        for rows in self._lists():
            for row in filter(None, rows):
                fqn, offsets, sizes, name, at, length = row
                chunks.setdefault(fqn, []).append((offsets, sizes))
                index = dcp_metadata.MetadataIndex(fqn, offsets, len(chunks[fqn]) - 1)
                storage[index] = dcp_filesystem._StorageInfo(name, at, length)
        metadata = self._metadata(by_fqn, chunks, storage)
        _publish(self._path(METADATA), lambda stream: pickle.dump(metadata, stream))
        for name in os.listdir(self._folder):  # also those of earlier calls, of more ranks
            if _LIST.fullmatch(name):
                with contextlib.suppress(OSError):
                    os.unlink(self._path(name))

    def _metadata(self, by_fqn: typing.Any, chunks: typing.Any, storage: typing.Any) -> typing.Any:
        values: dict[str, typing.Any] = {}
        for fqn, value in by_fqn.items():
            if fqn not in chunks:
                raise Corrupt(f"no rank has written '{fqn}': the ranks exported different checkpoints")
            values[fqn] = _about(value, chunks[fqn])
        for alias, source in self._values.aliases:  # the same place twice: stored once
            values[alias.fqn] = _about(alias, chunks[source])
            for i, (offsets, _) in enumerate(chunks[source]):
                place = storage[dcp_metadata.MetadataIndex(source, offsets, i)]
                storage[dcp_metadata.MetadataIndex(alias.fqn, offsets, i)] = place
        everything = [*self._values.values, *(alias for alias, _ in self._values.aliases)]
        return dcp_metadata.Metadata(
            values,
            planner_data={value.fqn: value.path for value in everything},
            storage_data=storage,
            storage_meta=dcp_metadata.StorageMeta(checkpoint_id=self._folder),
            version=dcp_filesystem.CURRENT_DCP_VERSION,
        )


def _about(value: _Value, chunks: list[typing.Any]) -> typing.Any:
    if value.shape is None:
        return dcp_metadata.BytesStorageMetadata()
    assert value.dtype is not None
    return dcp_metadata.TensorStorageMetadata(
        properties=dcp_metadata.TensorProperties(dtype=value.dtype),
        size=torch.Size(value.shape),
        chunks=[
            dcp_metadata.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
            for offsets, sizes in chunks
        ],
    )


def export_folder(
    ck: Checkpointer,
    step: int | typing.Literal["latest"],
    folder: str | os.PathLike[str],
    allow_pickle: bool,
    timeout: float | None,
) -> None:
    """See shoal.torch.export_dcp."""
    begun = time.monotonic()
    path = _arguments.path(folder, "the folder")
    with _errors.of_system(f"write to the folder {path}"):
        export = _Export(ck, path, timeout)
        export.prepare()
        try:
            with ck.open(step) as checkpoint:  # pinned: not deleted while it is open
                export.run(checkpoint, allow_pickle)
        except BaseException as error:
            export.fail(error)
            raise
    logger.info("step %d is exported to %s in %.2f s", checkpoint.step, path, time.monotonic() - begun)
