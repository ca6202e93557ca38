"""Runs a function of a test module on several ranks: one process each, as a launcher would start them."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import uuid


@functools.cache
def rank_server() -> subprocess.Popen[str]:
    """Ends with this process, which closes its standard input."""
    return subprocess.Popen(
        [sys.executable, str(pathlib.Path(__file__).with_name("rank_server.py"))],
        env=dict(os.environ, OMP_NUM_THREADS="1"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


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
    shared = dict(
        environment,
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(world_size),
        SHOAL_JOB_ID=uuid.uuid4().hex,
        OMP_NUM_THREADS="1",
    )
    with tempfile.TemporaryDirectory() as folder:
        outputs = [pathlib.Path(folder, str(rank)) for rank in range(world_size)]
        request = {
            "module": module,
            "function": function,
            "arguments": [str(argument) for argument in arguments],
            "path": [str(pathlib.Path(__file__).parent), *environment["PYTHONPATH"].split(os.pathsep)],
            "environments": [
                dict(shared, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(world_size)
            ],
            "outputs": [str(output) for output in outputs],
            "timeout_s": timeout_s,
        }
        server = rank_server()
        assert server.stdin is not None and server.stdout is not None
        print(json.dumps(request), file=server.stdin, flush=True)
        statuses = json.loads(server.stdout.readline())
        texts = [
            f"---- rank {rank}, {'timed out' if status is None else f'exit status {status}'} ----\n"
            + (outputs[rank].read_text() if outputs[rank].exists() else "")
            for rank, status in enumerate(statuses)
        ]
    assert statuses == [0] * world_size, "\n".join(texts)


def rank_and_world() -> tuple[int, int]:
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
