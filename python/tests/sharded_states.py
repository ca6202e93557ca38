"""Programs of the ranks in distributed_test.py. Their process group raises in every collective."""

from __future__ import annotations

import logging
import os
import signal
import math
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.tensor import DeviceMesh, DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

import shoal
from ranks import rank_and_world


class RaisingGroup(dist.ProcessGroup):
    """A process group without a single working collective."""

    def __init__(self, rank: int, world_size: int) -> None:
        super().__init__(rank, world_size)

    def getBackendName(self) -> str:
        return "raising"

    def __getattribute__(self, name: str):
        collective = (
            "all",
            "reduce",
            "broadcast",
            "barrier",
            "gather",
            "scatter",
            "send",
            "recv",
            "_all",
            "_reduce",
        )
        if name.startswith(collective):
            raise AssertionError(f"the collective {name} was called")
        return super().__getattribute__(name)


def start_raising_group() -> tuple[int, int]:
    rank, world_size = rank_and_world()
    dist.Backend.register_backend(
        "raising", lambda store, rank, size, timeout: RaisingGroup(rank, size), devices=["cpu"]
    )
    dist.init_process_group("raising", rank=rank, world_size=world_size, store=dist.HashStore())
    for name, collective in collectives(rank, world_size).items():
        try:
            collective()
        except Exception:  # as it must
            continue
        raise AssertionError(f"the collective {name} of the process group works")
    return rank, world_size


def collectives(rank: int, world_size: int) -> dict:
    """What a save or a load could have called."""
    one, mesh = torch.ones(1), DeviceMesh("cpu", torch.arange(world_size), _init_backend=False)
    sharded = distribute_tensor(torch.ones(2 * world_size), mesh, [Shard(0)], src_data_rank=None)
    calls = {
        "all_reduce": lambda: dist.all_reduce(one),
        "broadcast": lambda: dist.broadcast(one, 0),
        "barrier": dist.barrier,
        "all_gather": lambda: dist.all_gather([one.clone() for _ in range(world_size)], one),
        "all_gather_object": lambda: dist.all_gather_object([None] * world_size, "x"),
        "broadcast_object_list": lambda: dist.broadcast_object_list(["x"], 0),
        "send": lambda: dist.send(one, (rank + 1) % world_size),
    }
    if world_size > 1:
        calls["full_tensor"] = sharded.full_tensor
    return calls


SHAPES = {
    "a.weight": (16, 6),
    "a.bias": (16,),
    "b.weight": (7, 5),
    "b.bias": (3,),
    "c": (2, 8, 4),
    "d": (2, 4),
    "scalar": (),
}


def whole(name: str, scale: int = 1) -> torch.Tensor:
    shape = SHAPES[name]
    count = 1
    for size in shape:
        count *= size
    first = 1000 * list(SHAPES).index(name)
    return (torch.arange(count, dtype=torch.float32) + first).reshape(shape) * scale


LAYOUTS = ["fsdp", "tp", "hsdp", "fsdp_tp", "mixed"]


def placements_of(layout: str, world_size: int, shape: tuple[int, ...]) -> tuple[DeviceMesh, list]:
    """fsdp: rows over all ranks. tp: the last dimension over all. hsdp: replicas of shards. fsdp_tp: both,
    where a tensor with an odd number of rows is sharded by them twice, as FSDP2 does over colwise TP."""

    def shard(dim: int):
        return Shard(dim) if len(shape) > dim else Replicate()

    inner = 2 if world_size % 2 == 0 else 1
    grid = torch.arange(world_size).reshape(-1, inner)
    flat = torch.arange(world_size)
    last = max(len(shape) - 1, 0)
    if layout == "mixed":  # another one for each tensor, and meshes of some of the ranks
        chosen = ["fsdp", "hsdp", "half", "tp", "fsdp_tp", "other half"][math.prod(shape) % 6]
        return placements_of(chosen, world_size, shape)
    if layout == "half":
        return DeviceMesh("cpu", flat[: (world_size + 1) // 2], _init_backend=False), [shard(0)]
    if layout == "other half":
        return DeviceMesh("cpu", flat[world_size // 2 :], _init_backend=False), [shard(0)]
    if layout == "fsdp":
        return DeviceMesh("cpu", flat, _init_backend=False), [shard(0)]
    if layout == "tp":
        return DeviceMesh("cpu", flat, _init_backend=False), [shard(last)]
    if layout == "hsdp":  # an odd number of ranks: as many replicas
        replicas = grid.t().contiguous() if inner == 2 else grid
        return DeviceMesh("cpu", replicas, _init_backend=False), [Replicate(), shard(0)]
    assert layout == "fsdp_tp"
    mesh = DeviceMesh("cpu", grid, _init_backend=False)
    if len(shape) > 1 and shape[0] % 2:
        return mesh, [_StridedShard(0, split_factor=inner), Shard(0)]
    return mesh, [shard(0), shard(last)]


def sharded(layout: str, world_size: int, scale: int) -> dict[str, torch.Tensor]:
    state = {}
    for name, shape in SHAPES.items():
        mesh, placements = placements_of(layout, world_size, shape)
        state[name] = distribute_tensor(whole(name, scale), mesh, placements, src_data_rank=None)
    return state


def save_under_each(root: str) -> None:
    """Saves the state under every layout of this number of ranks, each as a step."""
    rank, world_size = start_raising_group()
    with shoal.Checkpointer(root) as ck:
        for layout in LAYOUTS:
            step = step_of(world_size, layout)
            state = {
                "model": sharded(layout, world_size, 1),
                "optim": sharded(layout, world_size, 2),
                "plain": torch.arange(10) + step,
                "shared": shoal.replicated(torch.arange(4096)),
                "own": shoal.per_rank({"rank": rank, "noise": torch.full((3,), rank)}),
                "step": step,
            }
            handle = ck.save(step, state)
            for value in [*state["model"].values(), *state["optim"].values()]:
                value.to_local().zero_()  # the save has copied them
            assert handle.committed(120).step == step


def step_of(world_size: int, layout: str) -> int:
    return 10 * world_size + LAYOUTS.index(layout)


def load_under_each(root: str, largest_world: str) -> None:
    """Loads what every number of ranks has saved under every layout, under every layout of this number."""
    rank, world_size = start_raising_group()
    wanted = {layout: parts_of(layout, world_size, (1, 2)) for layout in LAYOUTS}
    into = {layout: parts_of(layout, world_size, (0, 0)) for layout in LAYOUTS}
    loads = 0
    with shoal.Checkpointer(root, read_only=True) as ck:
        for saved_world in range(1, int(largest_world) + 1):
            for saved in LAYOUTS:
                step = step_of(saved_world, saved)
                for layout in LAYOUTS:
                    where = f"{saved} on {saved_world} ranks, loaded as {layout} on {world_size}"
                    load_and_compare(ck, step, into[layout], wanted[layout], rank, where)
                    loads += 1
                everything = ck.load(step)
                for name in SHAPES:
                    assert torch.equal(everything["model"][name], whole(name)), (saved, saved_world, name)
                assert torch.equal(everything["shared"], torch.arange(4096))
    assert loads == int(largest_world) * len(LAYOUTS) ** 2


def parts_of(layout: str, world_size: int, scales: tuple[int, int]) -> dict[str, dict[str, torch.Tensor]]:
    return {part: sharded(layout, world_size, scale) for part, scale in zip(("model", "optim"), scales)}


def load_and_compare(ck, step: int, parts: dict, wanted: dict, rank: int, where: str) -> None:
    for values in parts.values():
        for value in values.values():
            value.to_local().fill_(-1)
    own = shoal.per_rank({"rank": None}, required=False)
    state = {**parts, "plain": torch.zeros(10, dtype=torch.int64), "own": own, "step": 0}
    kept = {part: dict(values) for part, values in parts.items()}
    result = ck.load(step, into=state)
    for part, values in parts.items():
        for name, value in values.items():
            assert isinstance(value, DTensor) and value is kept[part][name]
            assert torch.equal(value.to_local(), wanted[part][name].to_local()), (where, part, name)
    assert torch.equal(state["plain"], torch.arange(10) + step) and state["step"] == step, where
    if rank < result.metadata.world_size:
        assert own.value["rank"] == rank and torch.equal(own.value["noise"], torch.full((3,), rank))


def save_stages(root: str) -> None:
    """Pipeline parallelism: each rank has layers of its own, and a part that all have."""
    rank, _ = start_raising_group()
    with shoal.Checkpointer(root) as ck:
        state = {
            "layers": {str(rank): {"weight": torch.full((4,), rank)}},
            "step": 3,
            "stage": {f"is {rank}": True},
        }
        ck.save(3, state).committed(120)
        state["layers"][str(rank)]["weight"].zero_()
        ck.load(3, into=state)
        assert state["layers"][str(rank)]["weight"].tolist() == [rank] * 4


def save_optimizers(root: str, kind: str, warns: str) -> None:
    """stages: the model of each rank has other names, but the optimizer numbers its parameters from 0."""
    rank, _ = rank_and_world()
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("shoal").addHandler(handler)
    layer = torch.nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(3)).sum().backward()
    optimizer.step()
    names = {"stages": [str(rank)], "replicas": ["0"], "more on one": ["0", "more"][: rank + 1]}[kind]
    with shoal.Checkpointer(root) as ck:
        for step in range(1, 4):
            state = {"model": {name: layer for name in names}, "optim": optimizer, "step": step}
            state["model"].update({"own": {str(rank): 1}})
            ck.save(step, state).committed(120)
    found = [line for line in lines if "of several ranks whose models have different tensors" in line]
    assert len(found) == (int(warns) if rank == 0 else 0), lines
    assert all("'optim.state.0.exp_avg'" in line for line in found), found


def raising_rank(root: str) -> None:
    """Rank 0 fails to save step 1: the save of rank 1 is aborted with that cause. A callback does not count
    as having seen the failure, so that the next save reports it."""
    rank, _ = rank_and_world()
    with shoal.Checkpointer(root) as ck:
        state = {"x": torch.zeros(3)}
        if rank == 0:
            try:
                ck.save(1, {"x": torch.zeros(3), "bad\nname": torch.zeros(3)})
            except shoal.InvalidArgument:
                ck.save(2, state).committed(120)
                return
            raise AssertionError("the name was not rejected")
        called = threading.Event()
        ck.save(1, state).add_done_callback(lambda handle: called.set())
        assert called.wait(120)
        try:
            ck.save(2, state)
        except shoal.EarlierSaveFailed as error:
            assert "step 1" in str(error) and "rank 0" in str(error), error
            assert error.handle is not None and error.handle.step == 2
            error.handle.committed(120)
        else:
            raise AssertionError("the failure of step 1 was lost")


def rank_that_cannot_describe(root: str, door: str) -> None:
    """Rank 1 raises before it comes to the client. Rank 0 learns why, at once, and both can save that step
    again: they have counted the same attempts."""
    import torch.distributed.checkpoint as dcp

    import shoal.torch

    rank, _ = rank_and_world()
    ck = shoal.torch.checkpointer(root)
    folder = f"{root}-of-rank-{rank}"
    dcp.save({"x": torch.zeros(3)}, checkpoint_id=folder, no_dist=True)
    if rank == 1:
        os.truncate(f"{folder}/__0_0.distcp", 10)

    def save(good: bool):
        state = {"x": torch.zeros(3), "y": 1 if good else object()}
        if door == "import":
            return shoal.torch.import_dcp(folder, root, 1)
        if door == "dcp":
            return shoal.torch.save(state, checkpoint_id=f"{root}/1")
        return ck.save(1, state).committed(120)

    begun = time.monotonic()
    try:
        save(good=rank == 0)
    except shoal.Error as error:
        if rank == 0:
            wanted = "is truncated" if door == "import" else "which Shoal cannot save"
            assert "rank 1" in str(error) and wanted in str(error), error
    else:
        raise AssertionError("the save of one rank was committed")
    assert time.monotonic() - begun < 60, "the node aborts a save after 120 s"
    if door != "import":
        save(good=True)
        assert ck.latest().step == 1 and ck.latest().attempt == 2


def save_views_of_nothing_and_tied_tensors(root: str) -> None:
    """Key and value are rows of one tensor, of which one rank has none. Tied tensors are on the other one."""
    rank, world_size = start_raising_group()
    warned = []
    logging.getLogger("shoal").addFilter(lambda record: warned.append(record.getMessage()) or True)
    with shoal.Checkpointer(root) as checkpointer:
        for step, owner in ((1, 0), (2, 1)):
            part = dict(run_check=False, shape=(1, 2), stride=(2, 1))
            placement = _rows_on(owner, world_size)
            fused = torch.arange(1.0, 5.0).reshape(2, 2) if rank == owner else torch.empty(0, 2)
            key, value = fused[:1], fused[1:] if rank == owner else fused[:1]
            one = DeviceMesh("cpu", [owner], _init_backend=False)
            local = torch.tensor([5.0, 6.0]) if rank == owner else torch.empty(0)
            tied = DTensor.from_local(local, one, [Replicate()], run_check=False, shape=(2,), stride=(1,))
            state = {
                "key": DTensor.from_local(key, placement, [Shard(0)], **part),
                "value": DTensor.from_local(value, placement, [Shard(0)], **part),
                "tied": tied,
                "too": tied,
            }
            checkpointer.save(step, state).committed(120)
            checkpointer.load(step, into=state)
    assert not warned, warned


def _rows_on(owner: int, world_size: int) -> DeviceMesh:
    """A mesh of all ranks whose first one is `owner`."""
    ranks = [owner, *(rank for rank in range(world_size) if rank != owner)]
    return DeviceMesh("cpu", ranks, _init_backend=False)


def raise_on_rank_1() -> None:
    assert rank_and_world()[0] != 1


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def save_and_load_by_dcp_calls(root: str) -> None:
    """The calls of shoal.torch with DCP's signatures need no collective either."""
    import shoal.torch

    _, world_size = start_raising_group()
    state = {"model": sharded("mixed", world_size, 1), "step": 1}
    shoal.torch.save(state, checkpoint_id=f"{root}/step-1")
    response = shoal.torch.async_save(
        {"model": sharded("fsdp", world_size, 2), "step": 2}, checkpoint_id=f"{root}/step-2"
    )
    response.upload_completion.result(120)
    for step, layout in ((1, "fsdp"), (2, "mixed")):
        into = {"model": sharded(layout, world_size, 0), "step": 0}
        shoal.torch.load(into, checkpoint_id=f"{root}/step-{step}")
        wanted = sharded(layout, world_size, step)
        assert into["step"] == step
        for name, value in into["model"].items():
            assert torch.equal(value.to_local(), wanted[name].to_local()), (step, name)
