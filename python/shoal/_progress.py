"""Progress of saves and loads: a callback, and a bar on a terminal."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import typing

from ._errors import Error, InvalidArgument

logger = logging.getLogger("shoal")

_INTERVAL_S = 0.2


class Progress(typing.NamedTuple):
    """How far a save or a load is.

    A save has the phases "staging" (bytes are copied, or other ranks of this host have not staged yet),
    "writing" (the node writes files), "committing" (other hosts or the decision are awaited) and "done". A
    load has "choosing", "reading" and "done". "done" says nothing of success: the handle, or load, does.
    """

    action: str  # "save" or "load"
    step: int | None  # None: the latest is loaded
    phase: str
    bytes_done: int  # of a save: of all ranks of this host; of a load: of the tensors of this rank
    bytes_total: int
    seconds: float  # since it began


Callback = typing.Callable[[Progress], object]


class Bar:
    """Shows progress as one line of a terminal, which is redrawn, and removed at the end."""

    def __init__(self, stream: typing.Any) -> None:
        self._stream = stream

    def __call__(self, progress: Progress) -> None:
        line = "" if progress.phase == "done" else text(progress)
        self._stream.write(f"\r\x1b[K{line}")
        self._stream.flush()


def text(progress: Progress) -> str:
    """For example "save of step 7, writing: ####------  1.5 of 3.0 GiB (50 %), 0.5 GiB/s"."""
    step = "the latest" if progress.step is None else f"step {progress.step}"
    share = progress.bytes_done / progress.bytes_total if progress.bytes_total else 0.0
    width = 20
    bar = ("#" * int(share * width)).ljust(width, "-")
    gib = 2**30
    rate = progress.bytes_done / progress.seconds / gib if progress.seconds > 0 else 0.0
    return (
        f"{progress.action} of {step}, {progress.phase}: {bar} {progress.bytes_done / gib:.2f} of "
        f"{progress.bytes_total / gib:.2f} GiB ({share:.0%}), {rate:.2f} GiB/s"
    )


def callback_of(wanted: typing.Any, rank: int) -> Callback | None:
    """What the option `progress` asks for on this rank."""
    if wanted is None or wanted is False:
        return None
    if wanted is True:
        return Bar(sys.stderr) if rank == 0 and sys.stderr is not None and sys.stderr.isatty() else None
    if not callable(wanted):
        raise InvalidArgument(f"progress is {wanted!r}: True, False or a function of a Progress is needed")
    return typing.cast(Callback, wanted)


class _Running:
    """A save or a load that the thread reports."""

    def __init__(self, action: str, step: int | None) -> None:
        self.action = action
        self.step = step
        self.begun = time.monotonic()
        self.bytes_total = 0
        self.handle: typing.Any = None  # of a save, once it is staged
        self.is_over = False

    def is_done(self) -> bool:
        return self.is_over or (self.handle is not None and self.handle.done())


class Watcher:
    """A thread that calls a callback several times a second while a save or a load runs."""

    def __init__(self, client: typing.Any, callback: Callback) -> None:
        self._client = client
        self._callback = callback
        self._changed = threading.Condition()
        self._running: list[_Running] = []
        self._stops = False
        self._thread = threading.Thread(target=self._run, name="shoal-progress", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def saving(self, step: int) -> typing.Iterator[_Running]:
        """Around a call of save, which sets `handle` of what it gets."""
        running = self._begin("save", step)
        try:
            yield running
        finally:
            if running.handle is None:
                self._end(running)

    @contextlib.contextmanager
    def loading(self, step: int | None) -> typing.Iterator[None]:
        running = self._begin("load", step)
        try:
            yield
        finally:
            self._end(running)

    def stop(self) -> None:
        """Reports what is done, and ends the thread."""
        with self._changed:
            self._stops = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def _begin(self, action: str, step: int | None) -> _Running:
        running = _Running(action, step)
        with self._changed:
            if not self._stops:
                self._running.append(running)
            self._changed.notify_all()
        return running

    def _end(self, running: _Running) -> None:
        with self._changed:
            running.is_over = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._running and not self._stops:
                    self._changed.wait()
                if not self._running:
                    return
                running = self._running[0]
            try:
                is_reported_done = self._report(running)
            except BaseException:  # SystemExit too: it would end this thread, which others wait for
                logger.exception("the progress callback failed: it is not called again")
                with self._changed:
                    self._stops = True
                    self._running.clear()
                return
            with self._changed:
                # It may have ended since it was reported: "done" must then be reported too.
                is_done = running.is_done()
                if is_reported_done or (self._stops and not is_done):
                    self._running.remove(running)
                elif not is_done:
                    self._changed.wait(_INTERVAL_S)

    def _report(self, running: _Running) -> bool:
        """Calls the callback. True: the phase was "done"."""
        is_done = running.is_done()
        phase, done = ("staging" if running.action == "save" else "choosing"), 0
        try:
            found = self._client.save_progress() if running.action == "save" else self._client.load_progress()
        except (Error, RuntimeError):  # it is closed
            found = None
        if found is not None and (running.action == "load" or found[0] == running.step):
            phase, done, running.bytes_total = found[3], found[4], found[5]
        if is_done:
            phase, done = "done", running.bytes_total
        seconds = time.monotonic() - running.begun
        self._callback(Progress(running.action, running.step, phase, done, running.bytes_total, seconds))
        return is_done
