"""export_safetensors: whole tensors as plain safetensors files, which the program `shoal` writes."""

from __future__ import annotations

import json
import os
import subprocess
import typing

from . import _arguments, _arrays, _errors
from ._errors import InvalidArgument, Unavailable

_CONVERTED = ("F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")  # what --dtype takes


class SafetensorsExport(typing.NamedTuple):
    """What Checkpointer.export_safetensors has written."""

    step: int
    files: list[str]  # paths
    tensors: int
    bytes: int  # of tensors


def options(
    only: typing.Any, rename: typing.Any, dtype: typing.Any, shard_size: typing.Any, format: typing.Any
) -> list[str]:
    """The arguments of `shoal export`."""
    out: list[str] = []
    names = [only] if isinstance(only, str) else only
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgument(f"only is {only!r}: a name such as 'model', or a list of names, is needed")
    for name in names:
        out.append(f"--only={name}")
    for old, new in _arguments.texts(rename, "rename").items():
        if not old or "=" in old:
            raise InvalidArgument(
                f"rename has the key {old!r}: the beginning of a name, without '=', is needed"
            )
        out.append(f"--rename={old}={new}")
    if dtype is not None:
        out.append(f"--dtype={_dtype_name(dtype)}")
    if shard_size is not None:
        if isinstance(shard_size, bool) or not isinstance(shard_size, (int, str)):
            raise InvalidArgument(f"shard_size is {shard_size!r}: bytes, or a text such as '5GB', are needed")
        out.append(f"--shard-size={shard_size}")
    if format not in ("huggingface", "safetensors"):
        raise InvalidArgument(f"format is {format!r}: huggingface or safetensors is needed")
    return [*out, f"--format={format}"]


def _dtype_name(dtype: typing.Any) -> str:
    """Of a torch dtype, a numpy dtype or a text, by its name in torch or in a safetensors header."""
    name = dtype if isinstance(dtype, str) else str(getattr(dtype, "__name__", dtype)).removeprefix("torch.")
    code = _arrays._TORCH_NAMES.get(name.lower(), name.upper())
    if code not in _CONVERTED:
        raise InvalidArgument(
            f"dtype is {dtype!r}: float32, float16, bfloat16, float8_e4m3fn or float8_e5m2 is needed"
        )
    return code


def run(
    program: str, root: str, attempt: tuple[int, int, int], folder: str, arguments: list[str]
) -> SafetensorsExport:
    """Runs `shoal export` for an attempt: step, generation and its number."""
    step, generation, number = attempt
    command = [program, "export", f"--step={step}", f"--attempt=g{generation}a{number}", f"--to={folder}"]
    with _errors.of_system(f"run {program}"):
        ended = subprocess.run(
            [*command, "--json", *arguments, root],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
    if ended.returncode != 0:
        raise _error_of(ended.stderr, ended.returncode)
    about = json.loads(ended.stdout)
    files = [os.path.join(folder, each["name"]) for each in about["files"]]
    return SafetensorsExport(step, files, about["tensors"], about["bytes"])


def _error_of(stderr: str, status: int) -> _errors.Error:
    """The last line that the program has written: "shoal: CODE: MESSAGE", or of its options "shoal: ..."."""
    lines = [line for line in stderr.splitlines() if line.startswith("shoal: ")]
    if not lines:
        return Unavailable(f"`shoal export` ended with status {status}: {stderr.strip() or 'no message'}")
    text = lines[-1].removeprefix("shoal: ")
    code, _, message = text.partition(": ")
    if code in _errors._BY_CODE:
        return _errors.error_of(code, message.replace("--force", "force=True"))
    return InvalidArgument(text)
