"""ShoalCheckpointIO: the checkpoints of a Lightning Trainer, written by Shoal.

    import lightning
    from shoal.lightning import ShoalCheckpointIO

    trainer = lightning.Trainer(plugins=[ShoalCheckpointIO()])

Each path that Lightning chooses, such as ".../epoch=0-step=100.ckpt", becomes a folder: a root of Shoal with
one checkpoint. A path may also begin with s3://BUCKET/. save_checkpoint returns when the state is copied, and
training goes on while the node of that root writes. Lightning asks this plugin for strategies that keep the
whole model on each rank, such as DDP; rank 0 saves. Strategies that shard the model write checkpoints of
their own.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import typing

import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO

from . import _arguments
from ._checkpointer import Checkpointer
from ._errors import InvalidArgument, NotFound

__all__ = ["ShoalCheckpointIO"]

logger = logging.getLogger("shoal")

Path = typing.Union[str, "os.PathLike[str]"]


class ShoalCheckpointIO(CheckpointIO):
    """A CheckpointIO plugin. Not thread-safe: Lightning calls it from the training thread."""

    def __init__(self, *, allow_pickle: bool = False, **options: typing.Any) -> None:
        """
        allow_pickle: hyperparameters and states of callbacks that are no plain values are stored as pickles,
            and pickles are loaded. Without it such a value is an error that names it.
        options: of shoal.Checkpointer. By default a path that is saved again keeps its newest checkpoint
            alone.
        """
        self._options = {"node": {"keep_last": 1}, **options, "allow_pickle": allow_pickle}
        self._saving: dict[str, Checkpointer] = {}

    def save_checkpoint(
        self, checkpoint: dict[str, typing.Any], path: Path, storage_options: typing.Any = None
    ) -> None:
        """Copies the checkpoint and returns. A failure is raised by the next call, or by teardown."""
        if storage_options is not None:
            raise InvalidArgument("storage_options are not taken: pass options to ShoalCheckpointIO")
        root = self._wait_for(path)
        self._forget_committed()
        if not _arguments.is_in_object_store(root):
            os.makedirs(root, exist_ok=True)
        ck = self._open(root)
        self._saving[root] = ck
        ck.save(int(checkpoint.get("global_step", 0)), checkpoint)

    def load_checkpoint(
        self, path: Path, map_location: typing.Any = None, weights_only: bool | None = None
    ) -> dict[str, typing.Any]:
        """Returns the whole checkpoint; its tensors are on the host unless map_location names a device.

        weights_only: True loads no pickle, whatever the constructor allows.
        """
        if callable(map_location) or isinstance(map_location, dict):
            raise InvalidArgument("map_location must be a device, or its name")
        root = self._wait_for(path)
        if not _arguments.is_in_object_store(root) and not os.path.isdir(root):
            raise NotFound(f"{root} is not a checkpoint of ShoalCheckpointIO: no such folder")
        with self._open(root, read_only=True) as ck:
            loaded = ck.load("latest", allow_pickle=False if weights_only else None)
        if map_location is None:
            return loaded
        return typing.cast(
            "dict[str, typing.Any]",
            torch.utils._pytree.tree_map_only(torch.Tensor, lambda each: each.to(map_location), loaded),
        )

    def remove_checkpoint(self, path: Path) -> None:
        """Removes the root of a path. A root in an object store stays, and the logger `shoal` warns of it."""
        root = self._wait_for(path)
        if _arguments.is_in_object_store(root):
            logger.warning("%s is not deleted: delete it with the tools of the object store", root)
            return
        shutil.rmtree(root, ignore_errors=False)

    def teardown(self) -> None:
        """Waits until all checkpoints are committed. Raises the first failure."""
        while self._saving:
            _, ck = self._saving.popitem()
            ck.close()

    def _open(self, root: str, **more: typing.Any) -> Checkpointer:
        # One process saves, and each loads for itself: jobs of one rank, whatever the launcher says.
        job_id = f"lightning-{secrets.token_hex(8)}"
        return Checkpointer(root, rank=0, world_size=1, job_id=job_id, **{**self._options, **more})

    def _wait_for(self, path: Path) -> str:
        """The root of a path, which no save of this process writes any more."""
        root = _arguments.root(path, "the path of a checkpoint")
        ck = self._saving.pop(root, None)
        if ck is not None:
            ck.close()
        return root

    def _forget_committed(self) -> None:
        """Closes what is decided, so that nodes of earlier paths can end."""
        for root, ck in list(self._saving.items()):
            if all(save.is_done() for save in ck._in_flight):
                del self._saving[root]
                ck.close()
