"""The encoding of values that are not arrays: the bytes of an object in a checkpoint.

The first byte says what follows. JSON text begins with none of these markers:

    JSON text       None, bool, int, float, str, and lists, tuples and dicts of them
    0x00            the value is bytes: they follow
    0x01            a pickle follows; written and read only where the caller allows it
    0x02            a packed value follows: nested containers with arrays (see pack)
    0x03            what torch.save has written follows: values that a planner of DCP has saved
    0x04            the value is a bytearray: its bytes follow

In JSON text an object stands for what JSON cannot express: {"tuple": [...]}, {"dict": [[key, value], ...]},
{"bytes": "<base64>"}, {"bytearray": "<base64>"}, {"float": "nan"}, {"complex": [re, im]}, and
{"torch.dtype": ...}, {"torch.device": ...}, {"torch.Size": ...}. A dict is such an object only in a
checkpoint that was imported from DCP; a state that Shoal saves has its keys in the structure.
`shoal import` writes the same encoding (admin/dcp/plain_value.h).
"""

from __future__ import annotations

import base64
import io
import json
import math
import pickle
import sys
import typing

from ._errors import Corrupt, InvalidArgument

_BYTES, _PICKLE, _PACKED, _TORCH, _BYTEARRAY = b"\x00", b"\x01", b"\x02", b"\x03", b"\x04"

_PLAIN = (type(None), bool, int, float, str, complex, bytes, bytearray)


def _torch() -> typing.Any:
    """The module torch if this process has imported it; Shoal itself never imports it without need."""
    return sys.modules.get("torch")


def is_plain(value: typing.Any, dicts: bool = False) -> bool:
    """Whether the value is one JSON text: a number, text, None, or lists and tuples of such values, with
    `dicts` also dicts of them whose keys are text or integers."""
    kind = type(value)
    if kind is list or kind is tuple:
        return all(is_plain(each, dicts) for each in value)
    if kind is dict and dicts:
        return all(type(key) in (str, int) and is_plain(each, True) for key, each in value.items())
    if kind in _PLAIN:
        return True
    torch = _torch()
    return torch is not None and kind in (torch.dtype, torch.device, torch.Size)


def _to_json(value: typing.Any) -> typing.Any:
    kind = type(value)
    if kind is list:
        return [_to_json(each) for each in value]
    if kind is tuple:
        return {"tuple": [_to_json(each) for each in value]}
    if kind is dict:
        return {"dict": [[key, _to_json(each)] for key, each in value.items()]}
    if kind is float and not math.isfinite(value):
        return {"float": repr(value)}
    if kind is complex:
        return {"complex": [_to_json(value.real), _to_json(value.imag)]}
    if kind in (bytes, bytearray):
        return {kind.__name__: base64.b64encode(value).decode("ascii")}
    torch = _torch()
    if torch is not None:
        if kind is torch.dtype or kind is torch.device:
            return {f"torch.{kind.__name__}": str(value)}
        if kind is torch.Size:
            return {"torch.Size": list(value)}
    return value


def _need_torch(name: str) -> typing.Any:
    try:
        import torch
    except ImportError:
        raise InvalidArgument(f"the checkpoint has a {name}: install torch to load it") from None
    return torch


def _from_json(value: typing.Any) -> typing.Any:
    if isinstance(value, list):
        return [_from_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tuple":
        return tuple(_from_json(each) for each in content)
    if kind == "dict":
        return {key: _from_json(each) for key, each in content}
    if kind == "float":
        return float(content)
    if kind == "complex":
        return complex(_from_json(content[0]), _from_json(content[1]))
    if kind == "bytes":
        return base64.b64decode(content)
    if kind == "bytearray":
        return bytearray(base64.b64decode(content))
    if kind == "torch.dtype":
        return getattr(_need_torch(kind), content.removeprefix("torch."))
    if kind == "torch.device":
        return _need_torch(kind).device(content)
    if kind == "torch.Size":
        return _need_torch(kind).Size(content)
    raise Corrupt(f"an object of unknown kind '{kind}': a newer version of Shoal may have written it")


def encode(value: typing.Any) -> bytes:
    """The bytes of a value for which is_plain is true."""
    if type(value) is bytes or type(value) is bytearray:
        return (_BYTES if type(value) is bytes else _BYTEARRAY) + value
    return json.dumps(_to_json(value), ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def encode_pickle(value: typing.Any) -> bytes:
    return _PICKLE + pickle.dumps(value, protocol=4)


def decode(content: bytes, name: str, allow_pickle: bool = False) -> typing.Any:
    """The value of an object. `name` is for errors."""
    if content[:1] == _BYTES:
        return content[1:]
    if content[:1] == _BYTEARRAY:
        return bytearray(content[1:])
    if content[:1] == _PICKLE:
        if not allow_pickle:
            raise InvalidArgument(
                f"'{name}' is a pickle, which can run code when it is loaded. If you trust the author of "
                "this checkpoint, pass allow_pickle=True to load it"
            )
        try:
            return pickle.loads(content[1:])
        except Exception as error:  # whatever its classes raise
            raise InvalidArgument(f"'{name}' cannot be unpickled: {error}") from error
    if content[:1] == _PACKED:
        return unpack(content, name, allow_pickle)
    if content[:1] == _TORCH:
        torch = _need_torch("value that torch.save has written")
        return torch.load(io.BytesIO(content[1:]), map_location="cpu", weights_only=not allow_pickle)
    try:
        return _from_json(json.loads(content.decode("utf-8", "surrogatepass")))
    except (ValueError, TypeError, AttributeError) as error:
        raise Corrupt(f"'{name}' is not an object that the Python package wrote: {error}") from None


def pack(tree: typing.Any, arrays: list[tuple[str, tuple[int, ...], memoryview]]) -> bytes:
    """One object of a whole subtree: a JSON header, and the bytes of its arrays. `tree` is JSON."""
    header = json.dumps(
        {"tree": tree, "arrays": [[dtype, list(shape), len(data)] for dtype, shape, data in arrays]}
    )
    encoded = header.encode()
    return b"".join([_PACKED, len(encoded).to_bytes(8, "little"), encoded, *(data for _, _, data in arrays)])


def unpack_parts(
    content: bytes, name: str
) -> tuple[typing.Any, list[tuple[str, tuple[int, ...], memoryview]]]:
    """The JSON tree and the arrays of a packed object."""
    view = memoryview(content)
    try:
        size = int.from_bytes(view[1:9], "little")
        header = json.loads(bytes(view[9 : 9 + size]))
        at, arrays = 9 + size, []
        for dtype, shape, length in header["arrays"]:
            if at + length > len(view):
                raise ValueError("it ends too early")
            arrays.append((dtype, tuple(shape), view[at : at + length]))
            at += length
        return header["tree"], arrays
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"'{name}' is not a packed value: {error}") from None


def unpack(content: bytes, name: str, allow_pickle: bool) -> typing.Any:
    from ._tree import unpacked

    return unpacked(content, name, allow_pickle)
