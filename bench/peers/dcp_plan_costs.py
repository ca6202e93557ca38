"""What PyTorch DCP's plans cost in Python, an item of a rank: the numbers of sim/profiles/pytorch-dcp.toml.

    dcp_plan_costs.py [RANKS TENSORS]     default: 64 723

One process plays all ranks, over a process group that sends nothing: each of TENSORS parameters is
sharded over RANKS as FSDP2 does, with two moments beside it and a step. Every part of a save that handles
items is run by DCP's own functions and timed by the processor's time, so that a busy machine disturbs
little; 64 ranks take two minutes and 2 GiB.
"""

import dataclasses
import pickle
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.checkpoint._dedup_save_plans import dedup_save_plans
from torch.distributed.checkpoint.default_planner import (
    _validate_global_plan,
    create_default_global_save_plan,
    create_default_local_save_plan,
)
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore


def state_of(tensors, mesh, ranks):
    state = {}
    for i in range(tensors):
        layer = f"layers.{i // 9}.feed_forward.w{i % 9}.weight"
        for name in (layer, f"optimizer.state.{layer}.exp_avg", f"optimizer.state.{layer}.exp_avg_sq"):
            local = torch.empty(1, 2)
            state[name] = DTensor.from_local(
                local, mesh, [Shard(0)], run_check=False, shape=torch.Size((ranks, 2)), stride=(2, 1)
            )
        state[f"optimizer.state.{layer}.step"] = torch.tensor(0.0)
    return state


def plan_of(rank, first):
    """Rank 0's plan, each shard at the place that this rank has."""
    items = []
    for item in first.items:
        if item.type != WriteItemType.SHARD:
            items.append(pickle.loads(pickle.dumps(item)))
            continue
        offsets = torch.Size((rank, 0))
        chunk = dataclasses.replace(item.tensor_data.chunk, offsets=offsets)
        data = dataclasses.replace(item.tensor_data, chunk=chunk)
        index = dataclasses.replace(item.index, offset=offsets)
        items.append(dataclasses.replace(item, index=index, tensor_data=data))
    return dataclasses.replace(first, items=items)


def main():
    ranks, tensors = map(int, sys.argv[1:3]) if len(sys.argv) == 3 else (64, 723)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    state = state_of(tensors, mesh, ranks)
    rows = []

    def timed(what, items, run, size=0):
        began = time.process_time()
        result = run()
        rows.append((what, items, (time.process_time() - began) / items * 1e6, size / items))
        return result

    first = timed(
        "create_local_plan, a rank", len(state), lambda: create_default_local_save_plan(state, True)
    )
    plans = [plan_of(rank, first) for rank in range(ranks)]
    each, total = len(first.items), len(first.items) * ranks

    def gather(name, values):
        packed = timed(f"pickle {name}", total, lambda: [pickle.dumps(value) for value in values])
        rows[-1] = (*rows[-1][:3], sum(map(len, packed)) / total)
        return timed(f"unpickle {name}", total, lambda: [pickle.loads(value) for value in packed])

    plans = gather("local plans", plans)
    plans = timed("dedup_save_plans", total, lambda: dedup_save_plans(plans))
    left = sum(len(plan.items) for plan in plans)
    plans, metadata = timed("create_global_plan", left, lambda: create_default_global_save_plan(plans))
    errors = timed("validate_global_plan", left, lambda: _validate_global_plan(plans, metadata))
    assert not errors, errors[:3]
    total = left
    plans = gather("global plans", plans)

    def result_of(rank, at, item):
        return WriteResult(item.index, 8, _StorageInfo(f"__{rank}_0.distcp", 8 * at, 8))

    results = [
        [result_of(rank, at, item) for at, item in enumerate(plan.items)] for rank, plan in enumerate(plans)
    ]
    results = gather("write results", results)

    def finish():
        storage = {}
        for each_rank in results:
            storage.update({result.index: result.storage_data for result in each_rank})
        return dataclasses.replace(metadata, storage_data=storage)

    metadata = timed("finish", total, finish)
    packed = timed("pickle .metadata", total, lambda: pickle.dumps(metadata))
    rows[-1] = (*rows[-1][:3], len(packed) / total)
    timed("unpickle .metadata", total, lambda: pickle.loads(packed))
    print(f"PyTorch {torch.__version__}: {ranks} ranks, {each} items each, {left} after deduplication")
    for what, items, microseconds, size in rows:
        print(f"{what:28} {microseconds:8.2f} us an item" + (f" {size:8.1f} bytes" if size else ""))


if __name__ == "__main__":
    main()
