"""The exceptions of Shoal: one class for each code of the C++ client's errors."""

from __future__ import annotations

import contextlib
import errno
import typing


class Error(Exception):
    """Base of all errors. The message names the first cause, and the rank and file where they apply."""

    code: typing.ClassVar[str] = "error"


class InvalidArgument(Error, ValueError):
    """A value, name or option that Shoal cannot use."""

    code = "invalid argument"


class NotFound(Error, LookupError):
    """The root has no checkpoint, or none of that step."""

    code = "not found"


class AlreadyExists(Error):
    """The thing to be created exists."""

    code = "already exists"


class Refused(Error):
    """The call is not allowed: a closed Checkpointer, a forked process, a job that only reads."""

    code = "refused"


class Unavailable(Error, ConnectionError):
    """No node answers at present."""

    code = "unavailable"


class DeadlineExceeded(Error, TimeoutError):
    """The wait has ended before the save was decided."""

    code = "deadline exceeded"


class Corrupt(Error):
    """Bytes do not match their digest or violate their format."""

    code = "corrupt"


class VersionMismatch(Error):
    """A format or protocol is newer than this program."""

    code = "version"


class IoError(Error, OSError):
    """The operating system reported an error."""

    code = "I/O error"


class NoSpace(Error, OSError):
    """The disk or the memory does not suffice."""

    code = "no space"


class Aborted(Error):
    """The save will never be committed. The message names the first cause."""

    code = "aborted"


class Busy(Error):
    """As many saves as allowed are in flight, and on_busy is 'decline'."""

    code = "busy"


class TooLarge(Error, ValueError):
    """A value exceeds a stated bound."""

    code = "too large"


class Internal(Error):
    """A defect of Shoal."""

    code = "internal error"


class Superseded(Error):
    """A later run or coordinator has replaced this one permanently."""

    code = "superseded"


class KeyMismatch(Error, LookupError):
    """Keys of the state and of the checkpoint differ: a key is missing or unexpected, or has another shape or
    type. `report` has all differences, if a load found them."""

    code = "key mismatch"
    report: typing.Any = None


class EarlierSaveFailed(Error):
    """An earlier save failed, and no call has reported that yet. The new save was staged nevertheless, unless
    on_failed or max_failed_saves prevent it: `handle` is its SaveHandle, or None."""

    code = "earlier save failed"
    handle: typing.Any = None


_BY_CODE: dict[str, type[Error]] = {
    each.code: each
    for each in (
        InvalidArgument,
        NotFound,
        AlreadyExists,
        Refused,
        Unavailable,
        DeadlineExceeded,
        Corrupt,
        VersionMismatch,
        IoError,
        NoSpace,
        Aborted,
        Busy,
        TooLarge,
        Internal,
        Superseded,
        KeyMismatch,
        EarlierSaveFailed,
    )
}


def error_of(code: str, message: str) -> Error:
    """The exception for a code of the C++ client. The extension module calls it."""
    return _BY_CODE.get(code, Error)(message)


@contextlib.contextmanager
def of_system(what: str) -> typing.Iterator[None]:
    """Errors of the operating system become errors of Shoal: "cannot `what`: ..."."""
    try:
        yield
    except Error:
        raise
    except OSError as error:
        help = {
            errno.EACCES: ". Give this user the right to it, or choose another folder",
            errno.EPERM: ". Give this user the right to it, or choose another folder",
            errno.EROFS: ". Choose a folder on another file system",
            errno.ENOTDIR: ": a part of the path is a file. Pass the path of a folder",
            errno.EEXIST: ": it is a file. Pass the path of a folder",
            errno.EISDIR: ": it is a folder where a file is expected",
            errno.ENAMETOOLONG: ". Choose a shorter path",
        }.get(error.errno or 0, "")
        named = f" ({error.filename})" if error.filename and str(error.filename) not in what else ""
        kind = NoSpace if error.errno in (errno.ENOSPC, errno.EDQUOT) else IoError
        raise kind(f"cannot {what}{named}: {error.strerror or error}{help}") from None
