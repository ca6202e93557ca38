"""Checks of arguments: a wrong one is an InvalidArgument that says what to pass instead."""

from __future__ import annotations

import numbers
import os
import re
import typing

from ._errors import InvalidArgument

_LARGEST_STEP = 2**64 - 1
_LARGEST_TIMEOUT_S = 1e9  # some 30 years
_URL = re.compile(r"[A-Za-z0-9]+:/")  # pathlib makes one '/' of two


def step_to_save(step: typing.Any) -> int:
    if _is_number(step, 0, _LARGEST_STEP):
        return int(step)
    raise InvalidArgument(f"the step is {step!r}: a number from 0 to 2**64 - 1 is needed")


def step_to_load(step: typing.Any) -> int | None:
    """None: the latest."""
    if isinstance(step, str) and step == "latest":
        return None
    if _is_number(step, 0, _LARGEST_STEP):
        return int(step)
    raise InvalidArgument(f"the step is {step!r}: 'latest' or a number from 0 to 2**64 - 1 is needed")


def timeout_s(timeout: typing.Any) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, numbers.Real) and not isinstance(timeout, bool) and timeout == timeout:
        return min(max(float(timeout), 0.0), _LARGEST_TIMEOUT_S)
    raise InvalidArgument(f"the timeout is {timeout!r}: seconds as a number, or None, are needed")


def count(value: typing.Any, name: str) -> int:
    if _is_number(value, 0, 2**32 - 1):
        return int(value)
    raise InvalidArgument(f"{name} is {value!r}: a number from 0 to 2**32 - 1 is needed")


def truth(value: typing.Any, name: str, default: bool = False) -> bool:
    """True or False; None is the default."""
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    raise InvalidArgument(f"{name} is {value!r}: True or False is needed")


def texts(given: typing.Any, name: str) -> dict[str, str]:
    """A dict of strings."""
    if given is None:
        return {}
    if isinstance(given, typing.Mapping):
        wrong = [item for item in given.items() if not all(_is_text(each) for each in item)]
        if not wrong:
            return dict(given)
        given = {wrong[0][0]: wrong[0][1]}
    raise InvalidArgument(f"{name} is {given!r}: a dict with str as keys and values is needed")


def _text_of_path(value: typing.Any, name: str) -> str:
    try:
        given = os.fspath(value)
        text = os.fsdecode(given)
        text.encode()
    except (TypeError, UnicodeError):
        text = ""
    if not text or "\0" in text:
        raise InvalidArgument(f"{name} is {value!r}: the path of a folder is needed, as str or os.PathLike")
    return text


def path(value: typing.Any, name: str) -> str:
    """An absolute path in the file system of this machine."""
    text = _text_of_path(value, name)
    if _URL.match(text):
        raise InvalidArgument(
            f"{name} is {value!r}, which is no local path: the path of a folder of this machine is needed"
        )
    return os.path.abspath(text)


def is_in_object_store(root: str) -> bool:
    return root.startswith("s3://")


def root(value: typing.Any, name: str) -> str:
    """A root: the absolute path of a folder, or s3://BUCKET/PREFIX."""
    text = _text_of_path(value, name)
    if is_in_object_store(text):
        bucket, *prefix = [each for each in text[len("s3://") :].split("/") if each] or [""]
        if bucket:
            return "s3://" + "/".join([bucket, *prefix])
        raise InvalidArgument(f"{name} is {value!r}, which names no bucket: s3://BUCKET/PREFIX is needed")
    if text.startswith("s3:/"):
        raise InvalidArgument(
            f"{name} is {value!r}, which lacks a '/': pass 's3://BUCKET/PREFIX' as a text, not as a Path"
        )
    if _URL.match(text):
        raise InvalidArgument(f"{name} is {value!r}: the path of a folder, or s3://BUCKET/PREFIX, is needed")
    return os.path.abspath(text)


def parent_root(root: str) -> str | None:
    """The root above a root, as `root` returns it; None above a bucket."""
    if is_in_object_store(root) and "/" not in root[len("s3://") :]:
        return None
    return root.rpartition("/")[0] or "/"


def choice(value: typing.Any, name: str, choices: typing.Sequence[str]) -> typing.Any:
    """One of the choices, or None."""
    if value is None or (isinstance(value, str) and value in choices):
        return value
    raise InvalidArgument(
        f"{name} is {value!r}: {', '.join(choices[:-1])} or {choices[-1]} is needed"
    )


def box(offsets: typing.Any, sizes: typing.Any, name: str) -> tuple[list[int], list[int]] | None:
    """Both or neither: a box of an array."""
    if offsets is None and sizes is None:
        return None
    try:
        given = (list(offsets), list(sizes))
    except TypeError:
        given = None
    if given and all(_is_number(each, 0, 2**63 - 1) for side in given for each in side):
        return [int(each) for each in given[0]], [int(each) for each in given[1]]
    raise InvalidArgument(
        f"'{name}': offsets are {offsets!r} and sizes are {sizes!r}: for a box pass both, as lists with one "
        "number of at least 0 for each dimension"
    )


def _is_text(value: typing.Any) -> bool:
    return isinstance(value, str) and is_utf8(value)


def is_utf8(text: str) -> bool:
    """False: it has surrogates, as the names of files have which are not UTF-8."""
    try:
        text.encode()
    except UnicodeError:
        return False
    return True


def _is_number(value: typing.Any, least: int, largest: int) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and least <= value <= largest
