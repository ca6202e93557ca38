"""Programs of the ranks in fsdp_test.py: models that torch shards itself."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import shoal
import shoal.torch
from ranks import rank_and_world


def start_gloo(store_file: str) -> tuple[int, int]:
    rank, world_size = rank_and_world()
    store = dist.FileStore(store_file, world_size)
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
    return rank, world_size


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(11, 12)
        self.up, self.down = torch.nn.Linear(12, 20), torch.nn.Linear(20, 12)
        self.head = torch.nn.Linear(12, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        return self.head(x + self.down(torch.relu(self.up(x))))


def build(parallel: str, world_size: int, seed: int) -> tuple[Model, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = Model()
    if parallel == "hsdp":
        mesh = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("replicate", "shard"))
    elif parallel == "fsdp_tp":
        grid = init_device_mesh("cpu", (world_size // 2, 2), mesh_dim_names=("data", "tensor"))
        parallelize_module(model, grid["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        mesh = grid["data"]
    else:
        mesh = init_device_mesh("cpu", (world_size,))
    fully_shard(model.head, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model: Model, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    losses = []
    for step in range(steps):
        tokens = (torch.arange(22) + step) % 11
        loss = torch.nn.functional.cross_entropy(model(tokens), (tokens * 3) % 11)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def save_for_import(folder: str) -> None:
    """Saves with DCP, for `shoal import`."""
    _, world_size = start_gloo(folder + ".store")
    model, optimizer = build("fsdp", world_size, seed=1)
    train(model, optimizer, 2)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optim": optimizer_state, "step": 2}, checkpoint_id=folder)


def save(root: str, store_file: str, parallel: str) -> None:
    rank, world_size = start_gloo(store_file)
    model, optimizer = build(parallel, world_size, seed=1)
    train(model, optimizer, 2)
    ck = shoal.Checkpointer(root)
    ck.save(2, {"model": model, "optim": optimizer, "whole": shoal.per_rank(0)})
    expected = {name: whole(value).detach() for name, value in model.state_dict().items()}
    losses = train(model, optimizer, 3)
    if rank == 0:
        torch.save({"model": expected, "losses": losses}, root + "/expected.pt")
    dist.destroy_process_group()  # a save needs none
    ck.save(5, {"model": model, "optim": optimizer}).committed(120)
    ck.close()


def load(root: str, store_file: str, parallel: str, tolerance: str) -> None:
    _, world_size = start_gloo(store_file)
    model, optimizer = build(parallel, world_size, seed=2)
    with shoal.Checkpointer(root, read_only=True) as ck:
        ck.load(2, into={"model": model, "optim": optimizer})
    expected = torch.load(root + "/expected.pt")
    for name, value in model.state_dict().items():
        assert torch.equal(whole(value), expected["model"][name]), name
    losses = train(model, optimizer, 3)
    for ours, theirs in zip(losses, expected["losses"]):
        assert abs(ours - theirs) <= float(tolerance), (losses, expected["losses"])
    dist.destroy_process_group()


def state_of(model: Model, optimizer: torch.optim.Optimizer) -> dict:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optim": optimizer_state}


def dcp_save(root: str, store_file: str, parallel: str) -> None:
    """DCP's own calls, with its planners and its collectives."""
    rank, world_size = start_gloo(store_file)
    model, optimizer = build(parallel, world_size, seed=1)
    train(model, optimizer, 2)
    state = state_of(model, optimizer)
    dcp.save(state, storage_writer=shoal.torch.StorageWriter(f"{root}/step-2"))
    response = dcp.async_save(state, storage_writer=shoal.torch.StorageWriter(f"{root}/step-3"))
    response.result()
    wholes = {name: whole(value).detach() for name, value in model.state_dict().items()}
    losses = train(model, optimizer, 3)
    if rank == 0:
        torch.save({"model": wholes, "losses": losses}, root + "/expected.pt")
    dist.destroy_process_group()


def dcp_load(root: str, store_file: str, parallel: str, tolerance: str) -> None:
    """Loads step 2 by DCP's call, and step 3 by that of shoal.torch."""
    _, world_size = start_gloo(store_file)
    expected = torch.load(root + "/expected.pt")
    for step, load_step in (
        (2, lambda state, path: dcp.load(state, storage_reader=shoal.torch.StorageReader(path))),
        (3, lambda state, path: shoal.torch.load(state, checkpoint_id=path)),
    ):
        model, optimizer = build(parallel, world_size, seed=step)
        state = state_of(model, optimizer)
        load_step(state, f"{root}/step-{step}")
        set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
        )
        for name, value in model.state_dict().items():
            assert torch.equal(whole(value), expected["model"][name]), (step, name)
        losses = train(model, optimizer, 3)
        for ours, theirs in zip(losses, expected["losses"]):
            assert abs(ours - theirs) <= float(tolerance), (step, losses, expected["losses"])
    dist.destroy_process_group()
