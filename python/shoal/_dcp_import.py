"""import_dcp: reads a folder of torch.distributed.checkpoint (DCP), and saves it as a checkpoint.

A folder has `.metadata`, a pickle that says which tensors exist and where their chunks are, and files
`__0_0.distcp`, each a sequence of archives that torch.save has written, one for each chunk. The format is
that of torch/distributed/checkpoint/filesystem.py of PyTorch 2.13.

A pickle can name any function and have it called. The two unpicklers here know a list of names and refuse
every other one. No code of the folder runs.
"""

from __future__ import annotations

import collections
import dataclasses
import io
import math
import mmap
import os
import pathlib
import pickle
import stat
import tempfile
import typing
import warnings
import zipfile
import zlib

import numpy as np
import torch
from torch.distributed.checkpoint import filesystem as dcp_filesystem
from torch.distributed.checkpoint import metadata as dcp_metadata

from . import _arguments, _client, _errors, _tensors, _tree, _values
from ._errors import Corrupt, Error, InvalidArgument, NoSpace, NotFound, TooLarge

if typing.TYPE_CHECKING:
    from ._checkpointer import Checkpointer

METADATA = ".metadata"
METADATA_BYTES_MAX = 4 << 30  # a job with more has more than ten million chunks
TENSOR_PICKLE_BYTES_MAX = 1 << 20  # data.pkl of one chunk has some 200 bytes
EXPANSION_BYTES_MAX = 1 << 30  # of a tensor that repeats its stored elements
OBJECT_BYTES_MAX = 1 << 30  # an object is read into memory as a whole

# ---- unpickling ----

_METADATA_NAMES: dict[tuple[str, str], typing.Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): torch.serialization._get_layout,  # type: ignore[attr-defined]
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): dcp_filesystem._StorageInfo,
}
for _name in (
    "BytesStorageMetadata",
    "ChunkStorageMetadata",
    "Metadata",
    "MetadataIndex",
    "StorageMeta",
    "TensorProperties",
    "TensorStorageMetadata",
    "_MEM_FORMAT_ENCODING",
):
    _METADATA_NAMES["torch.distributed.checkpoint.metadata", _name] = getattr(dcp_metadata, _name)
for _module in ("pathlib", "pathlib._local"):  # of the checkpoint_id; the second since Python 3.13
    for _name in ("PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath"):
        _METADATA_NAMES[_module, _name] = pathlib.PurePath
_DTYPES = {
    ("torch", name): value
    for name, value in vars(torch).items()
    if isinstance(value, torch.dtype) and repr(value) == f"torch.{name}"
}
_METADATA_NAMES.update(_DTYPES)


class _Unpickler(pickle._Unpickler):  # type: ignore[name-defined, misc]
    """Knows the names that it is given, and no other. It is the unpickler in Python: that in C sets
    attributes of classes, and allocates what an index of the memo says."""

    dispatch = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined]

    def load_build(self) -> None:
        if isinstance(self.stack[-2], type) or callable(self.stack[-2]):
            raise Corrupt(f"{self._where} sets attributes of a class or of a function")
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    def __init__(
        self,
        stream: typing.IO[bytes],
        where: str,
        names: typing.Mapping[tuple[str, str], typing.Any],
        storage: typing.Callable[[typing.Any], typing.Any] | None = None,
    ) -> None:
        super().__init__(stream)
        self._where = where
        self._names = names
        self._storage = storage

    def find_class(self, module: str, name: str) -> typing.Any:
        try:
            return self._names[module, name]
        except KeyError:
            raise InvalidArgument(
                f"{self._where} names {module}.{name}, which no checkpoint of DCP needs: it may run code, "
                "and is not imported"
            ) from None

    def persistent_load(self, identity: typing.Any) -> typing.Any:
        if self._storage is None:
            raise Corrupt(f"{self._where} refers to something outside of the pickle")
        return self._storage(identity)


def _unpickled(unpickler: _Unpickler, where: str) -> typing.Any:
    try:
        return unpickler.load()
    except Error:
        raise
    except Exception as error:  # a damaged pickle raises whatever the next bytes happen to mean
        raise Corrupt(f"{where} cannot be unpickled, it is damaged or truncated: {error!r}") from None


# ---- .metadata ----


@dataclasses.dataclass(slots=True)
class _Item:
    """A chunk of a tensor, or an object (dtype None), and where the folder has it."""

    fqn: str
    file: str
    at: int
    length: int
    dtype: str | None = None
    torch_dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()

    def describe(self, folder: str) -> str:
        of = f"'{self.fqn}'" if self.dtype is None else f"'{self.fqn}' at {list(self.offsets)}"
        return f"{of} in {os.path.join(folder, self.file)}, {self.length} bytes at {self.at}"


class _Folder:
    """What `.metadata` says, checked: every item lies within a file that exists."""

    def __init__(self, path: str) -> None:
        self.path = path
        metadata = self._read_metadata()
        self.items: list[_Item] = []
        for fqn, about in metadata.state_dict_metadata.items():
            if type(fqn) is not str:
                raise Corrupt(f"{self._metadata_path}: the name {fqn!r} is not a string")
            if fqn.startswith(_tree.STRUCTURES):
                raise InvalidArgument(f"{self._metadata_path}: the name '{fqn}' is reserved")
            if isinstance(about, dcp_metadata.BytesStorageMetadata):
                self.items.append(self._item(metadata, fqn, None))
            else:
                self._add_tensor(metadata, fqn, about)
        self.paths = self._paths(metadata.planner_data)
        self.items.sort(key=lambda item: (item.file, item.at, item.fqn, item.offsets))
        self._check_files()

    @property
    def _metadata_path(self) -> str:
        return os.path.join(self.path, METADATA)

    def _read_metadata(self) -> typing.Any:
        where = self._metadata_path
        if os.path.exists(where) and not os.path.isfile(where):
            raise Corrupt(f"{where} is not a file")
        try:
            with open(where, "rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                if size > METADATA_BYTES_MAX:
                    raise TooLarge(f"{where} has {size} bytes: {METADATA_BYTES_MAX} is the most")
                metadata = _unpickled(_Unpickler(stream, where, _METADATA_NAMES), where)
        except FileNotFoundError:
            raise NotFound(self._why_no_metadata()) from None
        if not isinstance(metadata, dcp_metadata.Metadata) or not all(
            isinstance(getattr(metadata, name, None), dict)
            for name in ("state_dict_metadata", "storage_data")
        ):
            raise Corrupt(f"{where} is not the metadata of a checkpoint of DCP's FileSystemWriter")
        return metadata

    def _why_no_metadata(self) -> str:
        if not os.path.isdir(self.path):
            return f"the folder {self.path} does not exist"
        names = os.listdir(self.path)
        if any(name.startswith("__") and name.endswith(METADATA) for name in names):
            return (
                f"{self._metadata_path} does not exist: this checkpoint was saved with "
                "use_collectives=False, which leaves one metadata file for each rank. Load it with "
                "DCP and save it again"
            )
        if any(name.endswith(".distcp") for name in names):
            return f"{self._metadata_path} does not exist: the save that wrote this folder did not finish"
        return f"{self._metadata_path} does not exist: this is not a folder of DCP"

    def _item(self, metadata: typing.Any, fqn: str, chunk: typing.Any) -> _Item:
        offsets = None if chunk is None else chunk.offsets
        info = metadata.storage_data.get(dcp_metadata.MetadataIndex(fqn, offsets))
        where = f"'{fqn}'" if chunk is None else f"'{fqn}' at {list(offsets)}"
        if info is None:
            raise Corrupt(f"{self._metadata_path} does not say where {where} is stored")
        name, at, length = (getattr(info, each, None) for each in ("relative_path", "offset", "length"))
        if type(name) is not str or type(at) is not int or type(length) is not int or at < 0 or length < 0:
            raise Corrupt(
                f"{self._metadata_path}: the place of {where} is not a file, an offset and a length"
            )
        if name != os.path.basename(name) or name in ("", ".", "..") or "\0" in name:
            raise InvalidArgument(
                f"{self._metadata_path} places {where} in '{name}', which is not a file of this folder"
            )
        if getattr(info, "transform_descriptors", None):
            raise InvalidArgument(
                f"{where} was written with the extensions {info.transform_descriptors}, which Shoal cannot "
                "read: load the checkpoint with DCP and save it without extensions"
            )
        return _Item(fqn, name, at, length)

    def _add_tensor(self, metadata: typing.Any, fqn: str, about: typing.Any) -> None:
        where = f"{self._metadata_path}: '{fqn}'"
        dtype = getattr(getattr(about, "properties", None), "dtype", None)
        shape, chunks = getattr(about, "size", None), getattr(about, "chunks", None)
        if not (
            isinstance(about, dcp_metadata.TensorStorageMetadata)
            and isinstance(dtype, torch.dtype)
            and _are_dims(shape)
            and isinstance(chunks, list)
        ):
            raise Corrupt(f"{where} is neither a tensor nor an object")
        shape, name, covered = tuple(shape), _tensors.dtype_name(dtype, fqn), 0
        for chunk in chunks:
            offsets, sizes = getattr(chunk, "offsets", None), getattr(chunk, "sizes", None)
            if not (_are_dims(offsets) and _are_dims(sizes) and len(offsets) == len(sizes) == len(shape)):
                raise Corrupt(f"{where} has a chunk without offsets and sizes of {len(shape)} dimensions")
            if any(at + size > whole for at, size, whole in zip(offsets, sizes, shape)):
                raise Corrupt(f"{where} has shape {shape}, but a chunk at {list(offsets)} of {list(sizes)}")
            count = math.prod(sizes)
            if count == 0 and math.prod(shape) != 0:
                continue  # a rank that held nothing
            covered += count
            item = self._item(metadata, fqn, chunk)
            item.dtype, item.torch_dtype, item.shape = name, dtype, shape
            item.offsets, item.sizes = tuple(offsets), tuple(sizes)
            self.items.append(item)
            if math.prod(shape) == 0:
                return
        if covered != math.prod(shape) or not chunks:
            raise Corrupt(
                f"{where} has {math.prod(shape)} elements, but its chunks have {covered}: parts are missing, "
                "or chunks overlap"
            )

    def _paths(self, planner_data: typing.Any) -> dict[str, list[typing.Any]]:
        """The path and the kind of each value, as StorageWriter of shoal.torch writes them."""
        known = planner_data if isinstance(planner_data, dict) else {}
        paths: dict[str, list[typing.Any]] = {}
        for item in self.items:
            path = known.get(item.fqn, (item.fqn,))
            if not isinstance(path, tuple) or not path or any(type(key) not in (str, int) for key in path):
                raise Corrupt(f"{self._metadata_path}: the path of '{item.fqn}' is {path!r}")
            if ".".join(map(str, path)) != item.fqn or "" in path:
                raise InvalidArgument(
                    f"{self._metadata_path}: the path of '{item.fqn}' is {path!r}: a path must be the name, "
                    "and no key may be empty"
                )
            paths[item.fqn] = [list(path), "object" if item.dtype is None else "torch"]
        leaves = {tuple(path) for path, _ in paths.values()}
        if len(leaves) < len(paths) or any(
            path[:n] in leaves for path in leaves for n in range(1, len(path))
        ):
            raise Corrupt(f"{self._metadata_path}: a path of planner_data leads through another value")
        return paths

    def _check_files(self) -> None:
        """Every rank checks all files, so that all of them fail at once, and not at a deadline."""
        needed: dict[str, _Item] = {}
        for item in self.items:
            last = needed.setdefault(item.file, item)
            if item.at + item.length > last.at + last.length:
                needed[item.file] = item
        for name, item in needed.items():
            where = os.path.join(self.path, name)
            try:
                about = os.stat(where)
                size = about.st_size
                if not stat.S_ISREG(about.st_mode):
                    raise Corrupt(f"{where} is not a file")
            except FileNotFoundError:
                raise NotFound(
                    f"{where} does not exist; {self._metadata_path} places '{item.fqn}' in it"
                ) from None
            if item.at + item.length > size:
                raise Corrupt(
                    f"{where} is truncated: it has {size} bytes, and '{item.fqn}' ends at "
                    f"{item.at + item.length}"
                )

    def share_of(self, position: int, ranks: int) -> list[_Item]:
        """The items that a rank writes: a run of neighbours, of about the same bytes on each rank."""
        total = sum(item.length for item in self.items)
        share, before = [], 0
        for item in self.items:
            middle = before + item.length / 2
            owner = min(int(middle * ranks / total), ranks - 1) if total else 0
            if owner == position:
                share.append(item)
            before += item.length
        return share


def _are_dims(value: typing.Any) -> bool:
    return isinstance(value, (torch.Size, tuple, list)) and all(type(n) is int and n >= 0 for n in value)


# ---- archives of torch.save ----


class _Window(io.RawIOBase):
    """Bytes of a mapped file, as the file that zipfile expects."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, len(self._data))[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: typing.Any) -> int:
        part = self._data[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


class _Storage(typing.NamedTuple):
    dtype: torch.dtype
    key: str


@dataclasses.dataclass(slots=True)
class _Saved:
    """A tensor as data.pkl describes it. Offset and strides count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    flags: typing.Any  # {"conj": True} or {"neg": True}: what reading does to the elements


def _rebuild_v2(
    storage: typing.Any,
    offset: typing.Any,
    shape: typing.Any,
    strides: typing.Any,
    requires_grad: object = None,
    hooks: object = None,
    flags: typing.Any = None,
) -> _Saved:
    return _Saved(storage, offset, shape, strides, storage.dtype, flags or {})


def _rebuild_v3(
    storage: typing.Any,
    offset: typing.Any,
    shape: typing.Any,
    strides: typing.Any,
    requires_grad: object,
    hooks: object,
    dtype: typing.Any,
    flags: typing.Any = None,
) -> _Saved:
    return _Saved(storage, offset, shape, strides, dtype, flags or {})


def _rebuild_parameter(data: typing.Any, *_: object) -> typing.Any:
    return data


_STORAGES = {
    "BFloat16Storage": torch.bfloat16,
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "ComplexFloatStorage": torch.complex64,
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "ShortStorage": torch.int16,
}
_TENSOR_NAMES: dict[tuple[str, str], typing.Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch", "Size"): torch.Size,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_v2,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_v3,
    ("torch.storage", "UntypedStorage"): torch.uint8,
    **{("torch", name): dtype for name, dtype in _STORAGES.items()},
    **_DTYPES,
}


def _record(archive: zipfile.ZipFile, data: memoryview, name: str, where: str) -> memoryview:
    """The bytes of a record. They are not compressed, so that they can be used where they are."""
    found = [info for info in archive.infolist() if info.filename.split("/", 1)[-1] == name]
    if len(found) != 1 or found[0].compress_type != zipfile.ZIP_STORED:
        raise Corrupt(f"{where} has no uncompressed record '{name}', as torch.save writes it")
    at = found[0].header_offset
    header = data[at : at + 30]
    if len(header) < 30 or bytes(header[:4]) != b"PK\x03\x04":
        raise Corrupt(f"{where}: the header of record '{name}' is damaged")
    at += 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    record = data[at : at + found[0].file_size]
    if len(record) != found[0].file_size:
        raise Corrupt(f"{where}: record '{name}' is truncated")
    if found[0].CRC not in (0, zlib.crc32(record)):  # 0: torch.serialization.set_crc32_options(False)
        raise Corrupt(f"{where}: record '{name}' is damaged, its CRC-32 differs")
    return record


def _saved_tensor(data: memoryview, where: str) -> tuple[_Saved, memoryview]:
    """What an archive of torch.save describes, and the bytes of its storage."""
    try:
        archive = zipfile.ZipFile(typing.cast("typing.IO[bytes]", _Window(data)))
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise Corrupt(
            f"{where} is not what torch.save writes ({error}): it is damaged, or the checkpoint was not "
            "saved in DCP's format 'torch_save'"
        ) from None
    names = {info.filename.split("/", 1)[-1] for info in archive.infolist()}
    if "byteorder" in names and bytes(_record(archive, data, "byteorder", where)) != b"little":
        raise InvalidArgument(f"{where} was saved on a big-endian machine")
    content = _record(archive, data, "data.pkl", where)
    if len(content) > TENSOR_PICKLE_BYTES_MAX:
        raise TooLarge(f"{where}: its pickle has {len(content)} bytes: {TENSOR_PICKLE_BYTES_MAX} is the most")

    def storage(identity: typing.Any) -> _Storage:
        kind, dtype, key = identity[:3]
        if kind != "storage" or not isinstance(dtype, torch.dtype) or type(key) is not str:
            raise Corrupt(f"{where}: its pickle refers to {identity!r}")
        return _Storage(dtype, key)

    saved = _unpickled(_Unpickler(io.BytesIO(content), where, _TENSOR_NAMES, storage), where)
    if not (
        isinstance(saved, _Saved)
        and isinstance(saved.storage, _Storage)
        and isinstance(saved.dtype, torch.dtype)
        and type(saved.offset) is int
        and saved.offset >= 0
        and _are_dims(saved.shape)
        and _are_dims(saved.strides)
        and len(saved.shape) == len(saved.strides)
        and isinstance(saved.flags, dict)
    ):
        raise Corrupt(f"{where} is not a tensor")
    if set(saved.flags) - {"conj", "neg"}:
        raise InvalidArgument(f"{where} has the flags {sorted(map(str, saved.flags))}, which are not known")
    return saved, _record(archive, data, f"data/{saved.storage.key}", where)


def _elements(item: _Item, data: memoryview, where: str) -> torch.Tensor | memoryview:
    """The elements of a chunk: their bytes if they lie there in order, else a tensor with strides."""
    saved, content = _saved_tensor(data, where)
    if saved.dtype != item.torch_dtype or tuple(saved.shape) != item.sizes:
        raise Corrupt(
            f"{where} has shape {tuple(saved.shape)} of {saved.dtype}, but the metadata says {item.sizes} of "
            f"{item.torch_dtype}"
        )
    count, size = math.prod(item.sizes), saved.dtype.itemsize
    if count == 0:
        return memoryview(b"")
    last = saved.offset + sum((n - 1) * stride for n, stride in zip(saved.shape, saved.strides))
    if count * size > len(content) + EXPANSION_BYTES_MAX:
        raise TooLarge(f"{where}: {len(content)} stored bytes are expanded to {count * size}")
    if (last + 1) * size > len(content):
        raise Corrupt(f"{where}: the storage has {len(content)} bytes, too few for the shape {item.sizes}")
    expected, in_order = 1, True
    for n, stride in zip(reversed(saved.shape), reversed(saved.strides)):
        in_order = in_order and (n == 1 or stride == expected)
        expected *= n
    if in_order and not saved.flags:
        return content[saved.offset * size : (saved.offset + count) * size]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the mapping is read-only: nothing writes to the tensor
        flat = torch.frombuffer(content, dtype=saved.dtype, count=last + 1)
    tensor = flat.as_strided(saved.shape, saved.strides, saved.offset)
    if saved.flags.get("conj"):
        tensor = torch.conj_physical(tensor)
    return -tensor if saved.flags.get("neg") else tensor


# ---- the import ----


class _Mapped:
    """The files of a folder, mapped: the client copies from them, and memory holds no copy of its own."""

    def __init__(self, folder: _Folder) -> None:
        self._folder = folder
        self._maps: dict[str, memoryview] = {}
        self._spilled: list[mmap.mmap] = []

    def bytes_of(self, item: _Item) -> memoryview:
        data = self._maps.get(item.file)
        if data is None:
            path = os.path.join(self._folder.path, item.file)
            with open(path, "rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                # An empty file cannot be mapped.
                data = (
                    memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
                    if size
                    else memoryview(b"")
                )
            self._maps[item.file] = data
        return data[item.at : item.at + item.length]

    def in_order(self, tensor: torch.Tensor) -> memoryview:
        """Row-major bytes of a tensor with strides, in a temporary file that has no name."""
        with tempfile.TemporaryFile() as stream:
            try:
                os.posix_fallocate(stream.fileno(), 0, tensor.nbytes)
            except OSError as error:
                raise NoSpace(
                    f"{tempfile.gettempdir()} has no room for {tensor.nbytes} bytes of a tensor that is not "
                    f"stored in order ({error.strerror}): set TMPDIR"
                ) from None
            mapped = mmap.mmap(stream.fileno(), tensor.nbytes)
        self._spilled.append(mapped)
        torch.frombuffer(mapped, dtype=torch.uint8).view(tensor.dtype).view(tensor.shape).copy_(tensor)
        return memoryview(mapped)


def _object_bytes(content: bytes, where: str, allow_pickle: bool) -> bytes:
    """An object of Shoal with the value that torch.save has written: JSON if that can express it."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise Corrupt(f"{where} is not what torch.save writes: {error}") from None
    for info in archive.infolist():
        _record(archive, memoryview(content), info.filename.split("/", 1)[-1], where)
    try:
        value = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        if allow_pickle:
            return _values._TORCH + content
        names = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content))
        raise InvalidArgument(
            f"{where} names {', '.join(names) or 'what no plain value needs'}, which may run code, and is "
            "not imported. allow_pickle=True imports the object unread"
        ) from None
    except Exception as error:
        raise Corrupt(f"{where} is not what torch.save writes: {error!r}".split("\n")[0]) from None
    return _values.encode(value) if _values.is_plain(value, dicts=True) else _values._TORCH + content


def _address(data: memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data) if len(data) else 0


def _pack(folder: _Folder, mapped: _Mapped, ck: Checkpointer, allow_pickle: bool) -> typing.Any:
    """A State of the client with this rank's share."""
    state = _client.State()
    own = _client.Mesh.from_ranks([1], [ck.rank])
    boxes: dict[str, tuple[_Item, list[tuple[list[int], list[int], int]]]] = {}
    for item in folder.share_of(ck._position, ck.world_size):
        where = item.describe(folder.path)
        data = mapped.bytes_of(item)
        if item.dtype is None:
            if item.length > OBJECT_BYTES_MAX:
                raise TooLarge(f"{where} is an object of more than {OBJECT_BYTES_MAX} bytes")
            state.add_bytes(item.fqn, _object_bytes(bytes(data), where, allow_pickle), own)
            continue
        elements = _elements(item, data, where)
        if isinstance(elements, torch.Tensor):
            elements = mapped.in_order(elements)
        held = boxes.setdefault(item.fqn, (item, []))[1]
        held.append((list(item.offsets), list(item.sizes), _address(elements)))
    for fqn, (item, held) in boxes.items():
        state.add_boxes(fqn, _client.dtype_number(item.dtype), item.shape, held, False, False)
    name, content = _tree.named_structure({"dcp": folder.paths})
    state.add_bytes(name, content, ck._world)
    return state


def import_folder(
    folder: str | os.PathLike[str], ck: Checkpointer, step: int, allow_pickle: bool
) -> _client.Metadata:
    """See shoal.torch.import_dcp."""
    number = _arguments.step_to_save(step)
    path = _arguments.path(folder, "the folder")
    with ck._describing(number), _errors.of_system(f"read the folder {path}"):
        opened = _Folder(path)
        mapped = _Mapped(opened)
        packed = _pack(opened, mapped, ck, allow_pickle)
    handle = ck._submit(number, packed, {})
    del mapped  # staged: the client has copied all of it
    return handle.committed()
