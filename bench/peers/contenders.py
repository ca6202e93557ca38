"""The libraries that vs_peers.py compares, each behind the same calls.

A Contender lives in one rank. `save` returns when the trainer may change its state; `wait` when the library
says that the checkpoint is complete. What a library does not sync, vs_peers.py syncs, and counts the time.
Each library has its own defaults, except where it would not run on a machine without a GPU.
"""

from __future__ import annotations

import os
import shutil
import typing

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

ROW_ELEMENTS = 256  # of float32: rows of 1 KiB


class Contender:
    """`local` are the tensors of this rank, which the trainer changes in place; a load fills them."""

    module = "torch"  # that must be installed
    is_durable = False  # whether a complete checkpoint has been synced, files and folders
    ranks_max = 1 << 20

    def __init__(self, rank: int, ranks: int, root: str, local: dict[str, torch.Tensor]) -> None:
        self.rank, self.ranks, self.root, self.local = rank, ranks, root, local
        self.open()

    def open(self) -> None:
        pass

    def sharded(self) -> dict[str, typing.Any]:
        """The state as FSDP2 has it: DTensors, sharded by rows, over the memory of `local`."""
        mesh = init_device_mesh("cpu", (self.ranks,))
        return {name: DTensor.from_local(each, mesh, [Shard(0)]) for name, each in self.local.items()}

    def folder(self, step: int) -> str:
        return os.path.join(self.root, f"step-{step}")

    def before_save(self) -> None:
        """Before the clock starts: makes what a trainer of this library has anyway."""

    def save(self, step: int) -> typing.Any:
        raise NotImplementedError

    def wait(self, pending: typing.Any) -> None:
        pass

    def load(self, step: int) -> None:
        raise NotImplementedError

    def after_load(self) -> None:
        """After the clock has stopped: puts what was loaded into `local`, to be compared."""

    def remove(self, step: int) -> None:
        """Called by rank 0."""
        shutil.rmtree(self.folder(step))

    def close(self) -> None:
        pass


class Shoal(Contender):
    module = "shoal"
    is_durable = True
    mode = "collective-free"

    def open(self) -> None:
        import shoal

        self.state = self.sharded()
        self.ck = shoal.Checkpointer(self.root, mode=self.mode, node={"keep_last": 1})

    def save(self, step: int) -> typing.Any:
        return self.ck.save(step, self.state)

    def wait(self, pending: typing.Any) -> None:
        pending.committed(120)

    def load(self, step: int) -> None:
        self.ck.load(step, into=self.state)

    def folder(self, step: int) -> str:
        return os.path.join(self.root, f"step-{step:08d}")

    def remove(self, step: int) -> None:
        pass  # retention removes it after the next save

    def close(self) -> None:
        self.ck.close()


class ShoalRankLocal(Shoal):
    mode = "rank-local"


class ShoalCollective(Shoal):
    mode = "collective"


class ShoalThroughDcp(Contender):
    """dcp.save and dcp.load with Shoal's storage: DCP plans and calls its collectives."""

    module = "shoal"
    is_durable = True

    def open(self) -> None:
        import shoal.torch

        self.torch = shoal.torch
        self.state = self.sharded()
        self.torch.checkpointer(self.root, node={"keep_last": 1})

    def save(self, step: int) -> typing.Any:
        dcp.save(self.state, storage_writer=self.torch.StorageWriter(os.path.join(self.root, str(step))))

    def load(self, step: int) -> None:
        dcp.load(self.state, storage_reader=self.torch.StorageReader(os.path.join(self.root, str(step))))

    def folder(self, step: int) -> str:
        return os.path.join(self.root, f"step-{step:08d}")

    def remove(self, step: int) -> None:
        pass  # as above


class Dcp(Contender):
    def open(self) -> None:
        self.state = self.sharded()

    def save(self, step: int) -> typing.Any:
        dcp.save(self.state, checkpoint_id=self.folder(step))

    def load(self, step: int) -> None:
        dcp.load(self.state, checkpoint_id=self.folder(step))


class DcpAsyncThread(Dcp):
    kind = dcp.state_dict_saver.AsyncCheckpointerType.THREAD

    def save(self, step: int) -> typing.Any:
        return dcp.async_save(self.state, checkpoint_id=self.folder(step), async_checkpointer_type=self.kind)

    def wait(self, pending: typing.Any) -> None:
        getattr(pending, "upload_completion", pending).result(120)


class DcpAsyncProcess(DcpAsyncThread):
    kind = dcp.state_dict_saver.AsyncCheckpointerType.PROCESS


class TorchCheckpointing(Contender):
    """Without a resharder, so that only as many ranks can load it: its resharder gathers metadata on CUDA."""

    module = "torch_checkpointing"

    def open(self) -> None:
        from torch_checkpointing import CheckpointManager
        from torch_checkpointing.config import AsyncCheckpointSaverConfig
        from torch_checkpointing.staging import CheckpointStagerConfig

        on_host = CheckpointStagerConfig(use_pinned_memory=False, use_non_blocking_copy=False)
        self.manager = CheckpointManager(
            CheckpointManager.Config(save=AsyncCheckpointSaverConfig(staging_config=on_host))
        )

    def save(self, step: int) -> typing.Any:
        pending = self.manager.save(self.folder(step), {"model": self.local})
        with self.manager.lock():  # a trainer changes its state under this lock
            return pending

    def wait(self, pending: typing.Any) -> None:
        pending.result(120)

    def load(self, step: int) -> None:
        self.manager.load(self.folder(step), into={"model": self.local})

    def close(self) -> None:
        self.manager.close()


class TorchSave(Contender):
    """A file for each rank, which cannot be loaded by another number of ranks."""

    def path(self, step: int) -> str:
        os.makedirs(self.folder(step), exist_ok=True)
        return os.path.join(self.folder(step), f"rank-{self.rank}.pt")

    def save(self, step: int) -> typing.Any:
        torch.save(self.local, self.path(step))

    def load(self, step: int) -> None:
        loaded = torch.load(self.path(step), mmap=True)
        for name, tensor in self.local.items():
            tensor.copy_(loaded[name])


class Safetensors(TorchSave):
    module = "safetensors"

    def path(self, step: int) -> str:
        return super().path(step) + ".safetensors"

    def save(self, step: int) -> typing.Any:
        from safetensors.torch import save_file

        save_file(self.local, self.path(step))

    def load(self, step: int) -> None:
        from safetensors.torch import load_file

        loaded = load_file(self.path(step))
        for name, tensor in self.local.items():
            tensor.copy_(loaded[name])


class Orbax(Contender):
    """AsyncCheckpointer with arrays of JAX; one process, which is what runs without a cluster of JAX."""

    module = "orbax.checkpoint"
    ranks_max = 1

    def open(self) -> None:
        import jax
        import orbax.checkpoint as ocp

        self.jax, self.ocp = jax, ocp
        self.checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())

    def before_save(self) -> None:
        self.made = {name: self.jax.numpy.array(each.numpy()) for name, each in self.local.items()}
        self.jax.block_until_ready(self.made)

    def save(self, step: int) -> typing.Any:
        self.checkpointer.save(self.folder(step), args=self.ocp.args.StandardSave(self.made))

    def wait(self, pending: typing.Any) -> None:
        self.checkpointer.wait_until_finished()

    def load(self, step: int) -> None:
        like = self.jax.tree.map(self.ocp.utils.to_shape_dtype_struct, self.made)
        self.loaded = self.checkpointer.restore(self.folder(step), args=self.ocp.args.StandardRestore(like))
        self.jax.block_until_ready(self.loaded)

    def after_load(self) -> None:
        for name, tensor in self.local.items():
            tensor.copy_(torch.from_numpy(self.jax.device_get(self.loaded[name]).copy()))

    def close(self) -> None:
        self.checkpointer.close()


CONTENDERS: dict[str, type[Contender]] = {
    "shoal": Shoal,
    "shoal, rank-local": ShoalRankLocal,
    "shoal, collective": ShoalCollective,
    "dcp.save, storage of shoal": ShoalThroughDcp,
    "dcp.save": Dcp,
    "dcp.async_save, thread": DcpAsyncThread,
    "dcp.async_save, process": DcpAsyncProcess,
    "torch_checkpointing": TorchCheckpointing,
    "torch.save": TorchSave,
    "safetensors": Safetensors,
    "orbax": Orbax,
}
