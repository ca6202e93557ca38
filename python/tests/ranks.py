"""Runs a function of a test module on several ranks: one process each, as a launcher would start them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import uuid


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
    tests = pathlib.Path(__file__).parent
    job_id = uuid.uuid4().hex
    program = (
        f"import sys; sys.path.insert(0, {str(tests)!r}); import {module}; {module}.{function}(*sys.argv[1:])"
    )
    children = []
    for rank in range(world_size):
        variables = dict(
            environment,
            RANK=str(rank),
            WORLD_SIZE=str(world_size),
            LOCAL_RANK=str(rank),
            LOCAL_WORLD_SIZE=str(world_size),
            SHOAL_JOB_ID=job_id,
            OMP_NUM_THREADS="1",
        )
        children.append(
            subprocess.Popen(
                [sys.executable, "-c", program, *map(str, arguments)],
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    outputs, failed = [], []
    for rank, child in enumerate(children):
        try:
            output, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            output, _ = child.communicate()
            output += "\n(timed out)"
        outputs.append(f"---- rank {rank}, exit status {child.returncode} ----\n{output}")
        if child.returncode != 0:
            failed.append(rank)
    assert not failed, "\n".join(outputs)


def rank_and_world() -> tuple[int, int]:
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
