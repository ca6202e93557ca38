"""Programs of the ranks in boxes_test.py."""

from __future__ import annotations

import itertools

import torch
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import EnumerableShardingSpec, ShardMetadata
from torch.distributed.fsdp import FullyShardedDataParallel, ShardedStateDictConfig, StateDictType

import shoal
import shoal.torch
from fsdp_models import start_gloo
from sharded_states import sharded, start_raising_group, whole

SHAPES = {"a.weight": (16, 6), "b.weight": (7, 5), "b.bias": (3,), "c": (2, 8, 4), "scalar": ()}


def flat_states(fill: bool, rank: int, world_size: int, padding: int = 1) -> dict[str, shoal.Boxes]:
    """Each tensor is flattened and cut into equal parts of the ranks. Late ranks may have nothing."""
    state = {}
    for name, shape in SHAPES.items():
        flat = whole(name).reshape(-1)
        size = -(-flat.numel() // world_size) + padding
        part = flat[rank * size : (rank + 1) * size].clone()
        begin = min(rank * size, flat.numel())
        state[name] = shoal.torch.flat_shard(part if fill else torch.zeros_like(part), shape, begin)
    return state


def save(root: str) -> None:
    rank, world_size = start_raising_group()
    with shoal.Checkpointer(root) as ck:
        for step in (1, 2):
            state = flat_states(True, rank, world_size)
            # Replicas of boxes: the first half of the ranks has the same as the second.
            copies = flat_states(True, rank % 2, 2)
            ck.save(step, {"flat": state, "copies": copies, "step": step}).committed(120)


def load(root: str) -> None:
    rank, world_size = start_raising_group()
    with shoal.Checkpointer(root, read_only=True) as ck:
        everything = ck.load(2)
        into = {part: flat_states(False, rank, world_size, padding=0) for part in ("flat", "copies")}
        ck.load(2, into=into)
        wanted = flat_states(True, rank, world_size, padding=0)
        dtensors = {"flat": {name: value for name, value in sharded("fsdp_tp", world_size, 0).items()}}
        dtensors["flat"] = {name: dtensors["flat"][name] for name in SHAPES}
        ck.load(2, into=dtensors)
        expected = sharded("fsdp_tp", world_size, 1)
    for name in SHAPES:
        assert torch.equal(everything["flat"][name], whole(name)), name
        assert torch.equal(everything["copies"][name], whole(name)), name
        assert torch.equal(dtensors["flat"][name].to_local(), expected[name].to_local()), name
        for part in into.values():
            assert len(part[name].parts) == len(wanted[name].parts)
            for (at, ours), (wanted_at, theirs) in zip(part[name].parts, wanted[name].parts):
                assert at == wanted_at and torch.equal(ours, theirs), name


def save_sharded_tensors(root: str, store: str) -> None:
    """ShardedTensors with any number of shards on a rank, each saved and loaded as every other."""
    rank, _ = start_gloo(store)
    numbers = torch.arange(200.0).reshape(10, 20)
    box_lists = [
        [([0, 0], [5, 20], 0), ([5, 0], [5, 20], 1)],
        [([0, 0], [3, 20], 0), ([3, 0], [7, 9], 1), ([3, 9], [7, 11], 0)],
        [([0, 0], [10, 20], 1)],  # rank 0 has none
    ]

    def make(boxes, fill: bool):
        shards = [
            ShardMetadata(shard_offsets=at, shard_sizes=sizes, placement=f"rank:{owner}")
            for at, sizes, owner in boxes
        ]
        made = sharded_tensor.zeros(EnumerableShardingSpec(shards), 10, 20)
        for shard in made.local_shards() if fill else ():
            shard.tensor.copy_(part_of(shard))
        return made

    def part_of(shard) -> torch.Tensor:
        (row, column), (rows, columns) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
        return numbers[row : row + rows, column : column + columns]

    with shoal.Checkpointer(root) as ck:
        for step, (saved, loaded) in enumerate(itertools.product(box_lists, box_lists)):
            ck.save(step, {"x": make(saved, True)}).committed(120)
            into = make(loaded, False)
            ck.load(step, into={"x": into})
            for shard in into.local_shards():
                assert torch.equal(shard.tensor, part_of(shard)), (step, rank)


def fsdp1(seed: int):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
    model = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def flat_parts(model: FullyShardedDataParallel, optimizer: torch.optim.Optimizer) -> dict:
    """The flat shards of all parameters and of the optimizer's state, as docs/how-to/python.md has them."""
    parameters = dict(model.named_parameters())
    state: dict[str, dict] = {"model": {}, "optim": {}}
    for module in FullyShardedDataParallel.fsdp_modules(model):
        flat = module._handle.flat_param
        for name, shape, shard in zip(flat._fqns, flat._shapes, flat._shard_param_infos):
            parameter = parameters[f"_fsdp_wrapped_module.{name}"]
            begin = shard.intra_param_start_idx or 0
            state["model"][name] = shoal.torch.flat_shard(parameter, shape, begin)
            if parameter.numel() == 0:
                state["optim"].update(
                    {f"{name}.{key}": shoal.boxes(shape, []) for key in ("exp_avg", "exp_avg_sq")}
                )
            for key, value in optimizer.state[parameter].items() if parameter.numel() else ():
                is_flat = value.ndim == 1
                state["optim"][f"{name}.{key}"] = (
                    shoal.torch.flat_shard(value, shape, begin) if is_flat else value
                )
    return state


def step(model, optimizer) -> None:
    model(torch.ones(4, 5)).square().sum().backward()
    optimizer.step()


def save_fsdp1(root: str, store: str) -> None:
    rank, _ = start_gloo(store)
    model, optimizer = fsdp1(1)
    step(model, optimizer)
    with shoal.Checkpointer(root) as ck:
        ck.save(1, flat_parts(model, optimizer)).committed(120)
        with FullyShardedDataParallel.state_dict_type(
            model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig()
        ):
            ck.save(2, {"model": model.state_dict()}).committed(120)
    with FullyShardedDataParallel.summon_full_params(model):
        if rank == 0:
            names = {name: value.detach().clone() for name, value in model.module.state_dict().items()}
            torch.save(names, root + "/expected.pt")
    torch.distributed.barrier()


def load_fsdp1(root: str, store: str) -> None:
    start_gloo(store)
    expected = torch.load(root + "/expected.pt")
    with shoal.Checkpointer(root) as ck:
        loaded = ck.load(1)
        for name, value in expected.items():
            assert torch.equal(loaded["model"][name], value), name
            average = loaded["optim"][f"{name}.exp_avg"]
            assert average.shape == value.shape and average.abs().sum() > 0
        for number in (1, 2):
            model, optimizer = fsdp1(number + 1)
            step(model, optimizer)
            if number == 1:
                ck.load(1, into=flat_parts(model, optimizer))
            else:
                with FullyShardedDataParallel.state_dict_type(
                    model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig()
                ):
                    state = model.state_dict()
                    ck.load(2, into={"model": state})
                    model.load_state_dict(state)
            with FullyShardedDataParallel.summon_full_params(model):
                for name, value in model.module.state_dict().items():
                    assert torch.equal(value, expected[name]), (number, name)
