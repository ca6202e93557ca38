"""PyTorch DCP, saving and loading what checkpoint_bench does: as many ranks, tensors and bytes.

    python3 dcp_bench.py --root FOLDER [--ranks 2] [--size BYTES] [--tensors 200] [--rounds 5] [--row NAME]

Needs PyTorch (its CPU build will do). Ranks are processes on gloo. A phase takes as long as its slowest rank;
medians over the rounds after two that warm up. `save` is dcp.save, `load` is dcp.load into the same tensors.
"""
import argparse
import os
import shutil
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

ROW_ELEMENTS = 1024
WARM_UP_ROUNDS = 2


def slowest(seconds):
    """The largest of all ranks' seconds."""
    value = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return value.item()


def run_rank(rank, options, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(options.ranks))
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (options.ranks,))
    rows = max(1, options.size // options.tensors // (4 * ROW_ELEMENTS))
    state = {
        f"layers.{i}.weight": DTensor.from_local(
            torch.full((rows, ROW_ELEMENTS), float(rank)), mesh, [Shard(0)]
        )
        for i in range(options.tensors)
    }
    saves, loads = [], []
    for step in range(options.rounds + WARM_UP_ROUNDS):
        path = os.path.join(folder, f"step-{step}")
        dist.barrier()
        begun = time.perf_counter()
        dcp.save(state, checkpoint_id=path)
        saves.append(slowest(time.perf_counter() - begun))
        dist.barrier()
        begun = time.perf_counter()
        dcp.load(state, checkpoint_id=path)
        loads.append(slowest(time.perf_counter() - begun))
        dist.barrier()
        if rank == 0:
            shutil.rmtree(path)
    if rank == 0:
        save = statistics.median(saves[WARM_UP_ROUNDS:]) * 1e3
        load = statistics.median(loads[WARM_UP_ROUNDS:]) * 1e3
        if options.row:
            print(f"| {options.row} | – | {save:.2f} ms | {load:.2f} ms |", flush=True)
        else:
            print(f"save {save:.2f} ms\nload {load:.2f} ms", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", required=True, help="a folder of the file system to measure")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--size", type=int, default=256 << 20, help="bytes of a rank")
    parser.add_argument("--tensors", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--row", help="print one row of a Markdown table, with this name")
    parser.add_argument("--port", type=int, default=29511)
    options = parser.parse_args()
    options.tensors = max(1, min(options.tensors, options.size // (4 * ROW_ELEMENTS)))
    folder = tempfile.mkdtemp(prefix="dcp-bench-", dir=options.root)
    try:
        mp.spawn(run_rank, args=(options, folder), nprocs=options.ranks)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
