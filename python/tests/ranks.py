"""Runs a function of a test module on several ranks: one process each, as a launcher would start them.

The import of torch takes seconds of each process. One server, this file as a program, therefore imports what
the ranks need and forks them. It has no threads and no Checkpointer, so that a forked rank is like a new
process.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import typing
import uuid

TESTS = pathlib.Path(__file__).parent


def run_ranks(
    module: str,
    function: str,
    world_size: int,
    environment: dict[str, str],
    *arguments: object,
    timeout_s: float = 240,
) -> None:
    """Calls `function(*arguments)`, with the arguments as text, on every rank. Fails with the output of all
    ranks if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [pathlib.Path(folder, str(rank)) for rank in range(world_size)]
        request = {
            "module": module,
            "function": function,
            "arguments": list(map(str, arguments)),
            "environment": dict(environment, SHOAL_JOB_ID=uuid.uuid4().hex, WORLD_SIZE=str(world_size)),
            "outputs": list(map(str, outputs)),
            "timeout_s": timeout_s,
        }
        server = _server(environment["PYTHONPATH"])
        assert server.stdin is not None and server.stdout is not None
        print(json.dumps(request), file=server.stdin, flush=True)
        statuses = json.loads(server.stdout.readline())
        texts = [
            f"---- rank {rank}, exit status {status} ----\n{output.read_text(errors='replace')}"
            for rank, (status, output) in enumerate(zip(statuses, outputs))
        ]
    assert len(statuses) == world_size and not any(statuses), "\n".join(texts)


def rank_and_world() -> tuple[int, int]:
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


@functools.cache
def _server(python_path: str) -> "subprocess.Popen[str]":
    """Ends when its standard input does, which is at the end of the tests."""
    return subprocess.Popen(
        [sys.executable, __file__],
        env=dict(os.environ, PYTHONPATH=python_path, PYTHONUNBUFFERED="1", OMP_NUM_THREADS="1"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# ---- the server ----


def serve() -> typing.Callable[[], None] | None:
    """Forks the ranks of each request, and answers with their exit statuses. Returns in each rank with what
    the rank has to do, and in the server None after the last request."""
    for line in sys.stdin:
        request = json.loads(line)
        children = []
        for rank in range(len(request["outputs"])):
            child = os.fork()
            if child == 0:
                return _rank(request, rank)
            children.append(child)
        deadline = time.monotonic() + request["timeout_s"]
        print(json.dumps([_wait(child, deadline) for child in children]), flush=True)
    return None


def _wait(child: int, deadline: float) -> int:
    """The exit status of a child, which is killed at the deadline; a signal is negative."""
    ended = os.pidfd_open(child)
    try:
        if not select.select([ended], [], [], max(0.0, deadline - time.monotonic()))[0]:
            os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(ended)


def _rank(request: dict[str, typing.Any], rank: int) -> typing.Callable[[], None]:
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(request["outputs"][rank], os.O_WRONLY | os.O_CREAT, 0o600)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.environ.update(
        request["environment"],
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=request["environment"]["WORLD_SIZE"],
    )
    function = getattr(importlib.import_module(request["module"]), request["function"])
    return functools.partial(function, *request["arguments"])


def end(status: int) -> typing.NoReturn:
    """Ends a rank without taking the interpreter apart, which would copy every page of torch."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))
    # torch imports _dynamo with the first DTensor, which would be in every rank.
    for preloaded in ("torch._dynamo", "fsdp_models", "sharded_states"):
        importlib.import_module(preloaded)
    gc.freeze()
    work = serve()
    if work is not None:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            end(1)
        end(0)
