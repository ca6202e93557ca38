"""Arrays: where the bytes of numpy arrays, torch tensors and DTensors are, and how they are sharded.

`describe` gives an Array for a value, which a save reads or a load fills. torch is used only if the process
has imported it.
"""

from __future__ import annotations

import dataclasses
import sys
import typing

import numpy as np

from . import _client
from ._errors import InvalidArgument
from ._wrappers import Boxes

# By kind and item size of a numpy dtype.
_NUMPY_NAMES = {
    "b1": "BOOL",
    "u1": "U8",
    "i1": "I8",
    "i2": "I16",
    "u2": "U16",
    "f2": "F16",
    "i4": "I32",
    "u4": "U32",
    "f4": "F32",
    "f8": "F64",
    "i8": "I64",
    "u8": "U64",
    "c8": "C64",
}
_NUMPY_DTYPES = {name: np.dtype("<" + code) for code, name in _NUMPY_NAMES.items()}
# By name of a torch dtype. ml_dtypes, which JAX uses with numpy, has the same names.
_TORCH_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "float64": "F64",
    "int64": "I64",
    "uint64": "U64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
_TORCH_DTYPE_NAMES = {name: code for code, name in _TORCH_NAMES.items()}
_DTYPE_NUMBERS = {name: _client.dtype_number(name) for name in _TORCH_NAMES.values()}

Placements = list[tuple[int, int, int]]  # (kind, tensor dimension, split factor): _client.Mesh


@dataclasses.dataclass(slots=True)
class Array:
    """An array of one rank: row-major memory on the host, and the sharding of the whole."""

    dtype: str  # as in a safetensors header
    shape: tuple[int, ...]  # global
    address: int
    owner: object  # keeps the memory alive
    alias_key: tuple[typing.Any, ...] | None  # equal for the same memory seen in the same way
    mesh: typing.Any = None  # None: the rank holds the whole array
    placements: Placements | None = None
    local_shape: tuple[int, ...] | None = None  # None: shape
    boxes: list[tuple[list[int], list[int], int]] | None = None  # instead of a mesh: offsets, sizes, address
    finish: typing.Callable[[], None] | None = None  # after a load: copies to where the bytes belong

    def add_to(
        self, state: typing.Any, fqn: str, world: typing.Any, replicated: bool, writable: bool
    ) -> None:
        number = _DTYPE_NUMBERS[self.dtype]
        if self.boxes is not None:
            state.add_boxes(fqn, number, self.shape, self.boxes, writable, replicated)
        elif self.mesh is None:
            state.add_value(fqn, number, self.shape, self.address, writable, world, replicated)
        else:
            state.add_tensor(fqn, number, self.shape, self.mesh, self.placements, self.address, writable)


def is_array(value: typing.Any) -> bool:
    if isinstance(value, (np.ndarray, np.generic)):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


UNHELD = "unheld"


def kind_of(value: typing.Any) -> str:
    """What the structure of a checkpoint names an array: numpy, scalar (of numpy) or torch. It is unheld if
    this rank has no part of the array, and so does not know which of them it is; earlier versions wrote torch
    then."""
    if isinstance(value, Boxes):
        return kind_of(value.parts[0][1]) if value.parts else UNHELD
    if isinstance(value, np.ndarray):
        return "numpy"
    return "scalar" if isinstance(value, np.generic) else "torch"


def describe(value: typing.Any, name: str, rank: int, writable: bool) -> Array | None:
    """None: this rank holds nothing of the value."""
    if isinstance(value, (np.ndarray, np.generic)):
        return _describe_numpy(value, name, writable)
    if isinstance(value, Boxes):
        return describe_boxes(value, name, rank, writable)
    from . import _tensors

    return _tensors.describe(value, name, rank, writable)


def describe_boxes(value: Boxes, name: str, rank: int, writable: bool) -> Array | None:
    if not value.parts:
        return None
    held: list[tuple[tuple[int, ...], Array]] = []
    for offsets, part in value.parts:
        array = describe(part, name, rank, writable) if is_array(part) else None
        if array is None or array.mesh is not None or array.boxes is not None:
            raise InvalidArgument(
                f"'{name}' has a part that is a {type(part).__name__}: an array of numpy or a plain tensor "
                "is needed"
            )
        held.append((offsets, array))
    dtypes = sorted({array.dtype for _, array in held})
    if len(dtypes) > 1:
        raise InvalidArgument(f"'{name}' has parts of the dtypes {' and '.join(dtypes)}: convert them to one")
    finishes = [array.finish for _, array in held if array.finish]

    def finish() -> None:
        for each in finishes:
            each()

    return Array(
        dtypes[0],
        value.shape,
        0,
        held,
        None,
        boxes=[(list(offsets), list(array.shape), array.address) for offsets, array in held],
        finish=finish if finishes else None,
    )


def numpy_dtype_name(dtype: np.dtype, name: str) -> str:
    found = _NUMPY_NAMES.get(f"{dtype.kind}{dtype.itemsize}") if dtype.names is None else None
    if found is None and dtype.names is None:  # ml_dtypes
        found = _TORCH_NAMES.get(dtype.name)
    if found is None:
        help = "convert it"
        if dtype.kind in "mM" or dtype == np.complex128:
            help = f"save array.view(numpy.{'float64' if dtype.kind == 'c' else 'int64'})"
        raise InvalidArgument(
            f"'{name}' has the numpy dtype {dtype}, which no checkpoint can hold: "
            f"{help}, or pass allow_pickle=True to store it as a pickle"
        )
    return found


def _describe_numpy(value: typing.Any, name: str, writable: bool) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidArgument(f"'{name}' is a masked array: save its data and its mask as two arrays")
    dtype_name = numpy_dtype_name(value.dtype, name)
    given = np.asarray(value)
    plain = given.flags.c_contiguous and given.flags.aligned and given.dtype.byteorder in "=|<"
    finish: typing.Callable[[], None] | None = None
    if writable and isinstance(value, np.generic):
        owner = np.array(given)  # a scalar cannot be changed: a load replaces it
    elif writable:
        if not given.flags.writeable:
            raise InvalidArgument(f"'{name}' is a read-only array: a load cannot fill it")
        owner = given if plain else np.empty(given.shape, given.dtype.newbyteorder("<"))
        if owner is not given:
            finish = lambda: np.copyto(given, owner)  # noqa: E731
    else:
        owner = given if plain else given.astype(given.dtype.newbyteorder("<"), order="C")
    key = None
    if given.size and not isinstance(value, np.generic):
        key = (given.ctypes.data, given.shape, given.strides, given.dtype)
    return Array(dtype_name, owner.shape, owner.ctypes.data, owner, key, finish=finish)


def numpy_dtype(name: str, fqn: str) -> np.dtype:
    found = _NUMPY_DTYPES.get(name)
    if found is not None:
        return found
    try:
        import ml_dtypes  # type: ignore[import-not-found]

        return np.dtype(getattr(ml_dtypes, _TORCH_DTYPE_NAMES[name]))
    except (ImportError, AttributeError, KeyError):
        raise InvalidArgument(
            f"'{fqn}' has the dtype {name}, which numpy lacks: import torch, or install ml_dtypes"
        ) from None


def new_array(kind: str, dtype: str, shape: tuple[int, ...], fqn: str) -> typing.Any:
    """An array with undefined contents. Of kind torch it is a tensor if torch can be imported."""
    if kind == "torch" or dtype not in _NUMPY_DTYPES:
        try:
            import torch

            # The program may have called torch.set_default_device.
            return torch.empty(shape, dtype=getattr(torch, _TORCH_DTYPE_NAMES[dtype]), device="cpu")
        except (ImportError, KeyError, AttributeError):
            pass
    return np.empty(shape, numpy_dtype(dtype, fqn))


def on_devices_of(target: typing.Any, value: typing.Any) -> typing.Any:
    """A new array of JAX with a loaded value, where an earlier one is. JAX has been imported."""
    jax = sys.modules["jax"]
    if not isinstance(value, (np.ndarray, np.generic)):  # numpy has no such dtype by itself, as bfloat16
        described = describe(value, "", 0, writable=False)
        assert described is not None
        dtype = numpy_dtype(described.dtype, "the value")
        value = np.frombuffer(bytes(host_bytes(described)), dtype).reshape(described.shape)
    return jax.device_put(value, target.sharding if target.committed else None)


def host_bytes(array: Array) -> memoryview:
    """The bytes of an array that is whole on this rank."""
    count = int(np.prod(array.shape, dtype=np.int64)) * _item_bytes(array.dtype)
    if count == 0:
        return memoryview(b"")
    import ctypes

    return memoryview((ctypes.c_ubyte * count).from_address(array.address)).cast("B")


def _item_bytes(dtype: str) -> int:
    if dtype in _NUMPY_DTYPES:
        return _NUMPY_DTYPES[dtype].itemsize
    return 2 if dtype == "BF16" else 1


def from_bytes(kind: str, dtype: str, shape: tuple[int, ...], data: memoryview, fqn: str) -> typing.Any:
    """A new array with these bytes."""
    value = new_array(kind, dtype, shape, fqn)
    target = describe(value, fqn, 0, writable=True)
    assert target is not None
    if len(data) != len(host_bytes(target)):
        raise InvalidArgument(f"'{fqn}' has {len(data)} bytes, which do not fit shape {shape} of {dtype}")
    if len(data):
        host_bytes(target)[:] = data
    return value[()] if kind == "scalar" else value
