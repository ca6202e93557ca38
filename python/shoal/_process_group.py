"""Rank, world size and job id of a program that has no launcher, but a process group of torch.

Programs that start their ranks themselves, such as those with torch.multiprocessing, may set no variable at
all. Their default process group knows the rank, and its store passes on a job id. No collective is called.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys

# Each of them says that a launcher has numbered the ranks (client/launch/job_environment.h).
_LAUNCHERS = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "TORCHELASTIC_RUN_ID")


def variables() -> dict[str, str]:
    """The variables that a launcher would have set; empty if there is one, or no group of several ranks."""
    torch = sys.modules.get("torch")
    if torch is None or any(os.environ.get(name) for name in _LAUNCHERS):
        return {}
    dist = getattr(torch, "distributed", None)
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return {}
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size == 1 or dist.get_backend() == "fake":
        return {}
    store = dist.PrefixStore("shoal", dist.distributed_c10d._get_default_store())
    found = {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
    store.set(f"host/{rank}", _host())
    if rank == 0:
        hosts = {store.get(f"host/{each}") for each in range(world_size)}
        store.set("one_host", "1" if len(hosts) == 1 else "0")
        store.set("job_id", f"group-{secrets.token_hex(8)}")
    found["SHOAL_JOB_ID"] = os.environ.get("SHOAL_JOB_ID") or store.get("job_id").decode()
    if store.get("one_host") == b"1":
        found["MASTER_ADDR"] = "127.0.0.1"
    return found


def _host() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as stream:
            return f"{socket.gethostname()} {stream.read().strip()}"
    except OSError:
        return socket.gethostname()
