"""Rank, world size and job id of a program that has no launcher, but a process group of torch.

Programs that start their ranks themselves, such as those with torch.multiprocessing, may set no variable at
all. Their default process group knows the rank, and its store passes on a job id. No collective is called.
"""

from __future__ import annotations

import datetime
import os
import secrets
import socket
import sys

from ._errors import Unavailable

_RANK_0_TIMEOUT_S = 60
# Each of them says that a launcher has numbered the ranks (client/launch/job_environment.h).
_LAUNCHERS = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "TORCHELASTIC_RUN_ID")


def variables() -> dict[str, str]:
    """The variables that a launcher would have set; empty if there is one, or no group of several ranks.

    Rank 0 leaves a job id and the name of its host in the store of the group. The other ranks wait for them.
    """
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
    if rank == 0 and not store.check(["job_id"]):
        store.set("host", _host())
        store.set("job_id", f"group-{secrets.token_hex(8)}")
    try:
        store.wait(["job_id"], datetime.timedelta(seconds=_RANK_0_TIMEOUT_S))
    except RuntimeError:
        raise Unavailable(
            f"rank {rank} waited {_RANK_0_TIMEOUT_S} s for rank 0 of the process group to open a "
            "Checkpointer. Open it on all ranks, or pass rank, world_size and job_id"
        ) from None
    found = {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
    found["SHOAL_JOB_ID"] = os.environ.get("SHOAL_JOB_ID") or store.get("job_id").decode()
    # Elsewhere the client needs the coordinator's address, and says so.
    if not os.environ.get("MASTER_ADDR") and store.get("host").decode() == _host():
        found["MASTER_ADDR"] = "127.0.0.1"
    return found


def _host() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as stream:
            return f"{socket.gethostname()} {stream.read().strip()}"
    except OSError:
        return socket.gethostname()
