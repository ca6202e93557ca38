"""Shoal saves and loads the checkpoints of sharded training jobs.

    import shoal

    ck = shoal.Checkpointer("/checkpoints/run7")
    state = {"model": model, "optim": optimizer, "extra": {"step": 0}}
    ck.load_or_start(into=state)                   # the latest checkpoint, on any number of ranks
    handle = ck.save(step, state)                  # returns when the state is copied
    handle.committed()                             # waits until the checkpoint exists

A save calls no collective and needs no process group. Only numpy is imported; torch is used where the program
has imported it.
"""

from __future__ import annotations

from . import sim
from ._checkpointer import Checkpoint, Checkpointer
from ._client import CheckpointInfo, LoadReport, LoadResult, Metadata, SaveStats
from ._errors import (
    Aborted,
    AlreadyExists,
    Busy,
    Corrupt,
    DeadlineExceeded,
    EarlierSaveFailed,
    Error,
    Internal,
    InvalidArgument,
    IoError,
    KeyMismatch,
    NoSpace,
    NotFound,
    Refused,
    Superseded,
    TooLarge,
    Unavailable,
    VersionMismatch,
)
from ._handle import SaveHandle
from ._progress import Progress
from ._safetensors_export import SafetensorsExport
from ._wrappers import Boxes, PerRank, Replicated, RngState, boxes, per_rank, replicated
from .sim import plan

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Boxes",
    "Busy",
    "Checkpoint",
    "CheckpointInfo",
    "Checkpointer",
    "Corrupt",
    "DeadlineExceeded",
    "EarlierSaveFailed",
    "Error",
    "Internal",
    "InvalidArgument",
    "IoError",
    "KeyMismatch",
    "LoadReport",
    "LoadResult",
    "Metadata",
    "NoSpace",
    "NotFound",
    "PerRank",
    "Progress",
    "Refused",
    "Replicated",
    "RngState",
    "SafetensorsExport",
    "SaveHandle",
    "SaveStats",
    "Superseded",
    "TooLarge",
    "Unavailable",
    "VersionMismatch",
    "boxes",
    "per_rank",
    "plan",
    "replicated",
    "sim",
]
