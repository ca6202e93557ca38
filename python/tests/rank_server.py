"""A process that forks ranks. It has imported torch, which takes longer than most of their work.

It reads one request a line from standard input, and answers with one line: JSON both. ranks.py is its client.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from typing import Any

PRELOADED = (
    "numpy",
    "torch",
    "torch._dynamo",  # distribute_tensor imports it
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
)


def run_rank(request: dict[str, Any], environment: dict[str, str], output: str) -> None:
    """In the forked process. Its caller must end the process, as a program that has reached its end."""
    os.environ.clear()
    os.environ.update(environment)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    sys.path[:0] = request["path"]
    module = importlib.import_module(request["module"])
    getattr(module, request["function"])(*request["arguments"])


def wait_for(children: list[int], timeout_s: float) -> list[int | None]:
    """The exit status of each; None: it ran longer, and was killed."""
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + timeout_s
    while len(statuses) < len(children) and time.monotonic() < deadline:
        for child in children:
            if child not in statuses:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    statuses[child] = os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    for child in children:
        if child not in statuses:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return [statuses.get(child) for child in children]


def main() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    while line := sys.stdin.readline():
        request = json.loads(line)
        children = []
        for environment, output in zip(request["environments"], request["outputs"], strict=True):
            child = os.fork()
            if child == 0:
                return run_rank(request, environment, output)
            children.append(child)
        print(json.dumps(wait_for(children, request["timeout_s"])), flush=True)


if __name__ == "__main__":
    main()
