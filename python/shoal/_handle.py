"""SaveHandle: one save in flight."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import typing

from . import _arguments, _client
from ._errors import Error, InvalidArgument

logger = logging.getLogger("shoal")

_FIRST_POLL_S, _LAST_POLL_S = 0.001, 0.05  # how often a thread looks whether a save is decided

_watchers: "set[threading.Thread]" = set()
_exiting = threading.Event()


class Warnings:
    """What is to be logged of one save, once it is decided."""

    def __init__(self, handle: typing.Any) -> None:
        self._handle = handle
        self._has_warned = False
        self._has_logged_warning = False
        self.without_parts: list[str] = []  # arrays of this save of which this rank holds nothing

    @property
    def step(self) -> int:
        return int(self._handle.step)

    def log(self) -> bool:
        """Logs, once each, that a committed save holds what earlier ones hold, and that its replicas differ.
        Returns whether it is decided."""
        decided = self.is_done()
        warning = str(self._handle.warning) if decided else ""
        if warning and not self._has_logged_warning:
            self._has_logged_warning = True
            logger.warning("step %d is committed, but %s", self._handle.step, warning)
        since = self._handle.unchanged_since if decided else None
        if since is not None and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "step %d is committed, but nothing has changed since step %d: all files have the same bytes. "
                "Does the state refer to the tensors that are trained?",
                self._handle.step,
                since,
            )
        return decided

    def is_done(self) -> bool:
        return bool(self._handle.done())


class SaveHandle:
    """One save in flight. Any thread may use it. It keeps its Checkpointer open until `committed` has
    returned. To drop it does not cancel the save.

    A failure is reported by `committed`, by `exception` and by `await`. If none of them was called, the next
    save and close raise it, and at exit it is printed.
    """

    def __init__(self, handle: typing.Any, checkpointer: typing.Any = None) -> None:
        self._handle = handle
        self._checkpointer = checkpointer  # which must live as long as somebody may wait for the save
        self._lock = threading.Lock()
        self._callbacks: list[typing.Callable[[SaveHandle], object]] | None = None
        self._warnings = Warnings(handle)
        self._has_logged = False

    @property
    def step(self) -> int:
        return int(self._handle.step)

    @property
    def attempt(self) -> int:
        """The number of the attempt at saving, which increases when the steps go back."""
        return int(self._handle.attempt)

    @property
    def stats(self) -> _client.SaveStats:
        """What the call of save has cost: bytes and seconds."""
        return self._handle.stats

    @property
    def seconds_to_decision(self) -> float:
        """Seconds from the call of save until the checkpoint was committed or failed; 0 until then."""
        return float(self._handle.seconds_to_decision)

    @property
    def unchanged_since(self) -> int | None:
        """The earliest step since which every checkpoint of this Checkpointer has had the same bytes in all
        files as this one. None if something has changed, and until the save is committed."""
        return typing.cast("int | None", self._handle.unchanged_since)

    @property
    def warning(self) -> str:
        """Which replicas of a committed save differ: tensor, block and ranks (`replica_check`). Empty if no
        difference was found, and until the save is committed."""
        return str(self._handle.warning)

    def done(self) -> bool:
        """Whether the save is committed or has failed. Does not wait."""
        return bool(self._handle.done())

    def committed(self, timeout: float | None = None) -> _client.Metadata:
        """Waits until the checkpoint exists and is durable, and returns what it holds.

        Raises the error of a save that has failed, and DeadlineExceeded if the save is undecided after
        `timeout` seconds. Ctrl-C interrupts the wait.
        """
        metadata = self._handle.wait_committed(_arguments.timeout_s(timeout))
        if not self._has_logged:
            self._has_logged = True
            logger.info(
                "step %d is committed: %.1f MiB of this rank, %.2f s after the call of save",
                self.step,
                self.stats.bytes_staged / 2**20,
                self.seconds_to_decision,
            )
        self._warnings.log()
        self._checkpointer = None
        return metadata

    def exception(self) -> Error | None:
        """The error of a save that has failed; None if it is committed or in flight. Does not wait."""
        if not self.done():
            return None
        try:
            self.committed(0)
        except Error as error:
            return error
        return None

    def add_done_callback(self, callback: typing.Callable[[SaveHandle], object]) -> None:
        """Calls `callback(handle)` once the save is decided, in a thread of Shoal. Exceptions of the callback
        are logged."""
        if not callable(callback):
            raise InvalidArgument(f"the callback is {callback!r}: a function of a handle is needed")
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
            self._callbacks = [callback]
        thread = threading.Thread(target=self._watch, name=f"shoal-save-{self.step}", daemon=True)
        _watchers.add(thread)
        thread.start()

    def _watch(self) -> None:
        try:
            # A wait for the outcome would count as having reported a failure, which nobody has seen yet.
            pause = _FIRST_POLL_S
            while not self.done() and not _exiting.wait(pause):
                pause = min(2 * pause, _LAST_POLL_S)
            while self.done():
                with self._lock:
                    callbacks, self._callbacks = self._callbacks, None
                if not callbacks:
                    return
                for callback in callbacks:
                    try:
                        callback(self)
                    except BaseException:  # SystemExit too: other callbacks follow
                        logger.exception("a callback of the save of step %d failed", self.step)
        finally:
            _watchers.discard(threading.current_thread())

    def __await__(self) -> typing.Generator[typing.Any, None, _client.Metadata]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def wake(_: SaveHandle) -> None:
            try:
                loop.call_soon_threadsafe(lambda: future.done() or future.set_result(None))
            except RuntimeError:  # the loop is closed: nobody waits
                pass

        self.add_done_callback(wake)
        yield from future
        return self.committed(0)

    def __repr__(self) -> str:
        try:
            state = "decided" if self.done() else "in flight"
        except Error as error:  # in a forked process
            state = str(error)
        return f"<shoal.SaveHandle step {self.step}, attempt {self.attempt}: {state}>"


def end_watchers() -> None:
    """At exit: ends the threads that wait for saves."""
    _exiting.set()
    for thread in list(_watchers):
        if thread is not threading.current_thread():
            thread.join(1.0)


def report_at_exit(error: BaseException) -> None:
    print(f"shoal: {error}", file=sys.stderr, flush=True)
