"""A small GPT in PyTorch that is sharded over ranks, saves every few steps, and continues where it was.

    torchrun --nproc-per-node 4 examples/train_gpt.py --root /tmp/run --text README.md --losses /tmp/losses

Three lines are Shoal's: they are marked. The losses go to --losses, one line of JSON a step, with the
digests of the state at each save and load. examples/demo_torch.sh compares runs by them, bit for bit.
"""

import argparse
import hashlib
import json
import os
import signal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import shoal


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (each.view(batch, length, self.heads, -1).transpose(1, 2) for each in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2, length: int = 64) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(256, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def shard(model: Gpt, how: str, ranks: int) -> None:
    """fsdp: FSDP2 over all ranks; hsdp: two replicas of it; tp: FSDP2 over pairs with tensor parallelism."""
    if how == "hsdp":
        mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicate", "shard"))
    elif how == "tp":
        grid = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("data", "tensor"))
        for block in model.blocks:
            parallelize_module(block, grid["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        mesh = grid["data"]
    else:
        mesh = init_device_mesh("cpu", (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def batch_of(text: torch.Tensor, step: int, rank: int, ranks: int, size: int = 8, length: int = 64):
    """The batch of a data-parallel rank is a function of the step, so that a run that continues sees the same
    data."""
    generator = torch.Generator().manual_seed(step)
    starts = torch.randint(len(text) - length - 1, (size,), generator=generator)[rank::ranks]
    rows = torch.stack([text[start : start + length + 1] for start in starts]).long()
    return rows[:, :-1], rows[:, 1:]


def digest_of(model: Gpt, optimizer: torch.optim.Optimizer) -> str:
    """The digest of every whole tensor, which does not depend on how they are sharded. For the comparison of
    runs: the collectives in it are not needed to save."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        for tensor in (parameter, *(value for _, value in sorted(optimizer.state[parameter].items()))):
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            digest.update(name.encode() + whole.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


class Journal:
    """The file of losses and digests, which rank 0 writes."""

    def __init__(self, path: str) -> None:
        self.path = path

    def add(self, **line: object) -> None:
        if dist.get_rank() == 0:
            with open(self.path, "a") as file:
                print(json.dumps(line), file=file)


def options_of_the_command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", required=True, help="folder of the checkpoints")
    parser.add_argument("--text", required=True, help="file with the text to learn")
    parser.add_argument("--losses", required=True, help="file for losses and digests")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--parallel", choices=("fsdp", "hsdp", "tp"), default="fsdp")
    parser.add_argument("--kill-at", type=int, help="SIGKILL to each rank once it has staged this step")
    parser.add_argument(
        "--lose-rank-at", type=int, help="SIGKILL to each rank at this step, to the last before it has staged"
    )
    return parser.parse_args()


def main() -> None:
    options = options_of_the_command_line()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Gpt()
    shard(model, options.parallel, ranks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    journal = Journal(options.losses)
    with open(options.text, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)

    state = {"model": model, "optim": optimizer, "extra": {"step": 0}}
    ck = shoal.Checkpointer(options.root)  # Shoal: finds or starts the node of this host
    ck.load_or_start(into=state)  # Shoal: continues from the latest checkpoint, if there is one
    if state["extra"]["step"]:
        journal.add(loaded=state["extra"]["step"], ranks=ranks, digest=digest_of(model, optimizer))
    if rank == 0:
        print(f"{ranks} ranks continue after step {state['extra']['step']}", flush=True)

    # A pair of tensor-parallel ranks computes one batch.
    pair = 2 if options.parallel == "tp" else 1
    for step in range(state["extra"]["step"] + 1, options.steps + 1):
        tokens, targets = batch_of(text, step, rank // pair, ranks // pair)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        journal.add(step=step, loss=(mean / ranks).item())
        state["extra"]["step"] = step
        if step % options.save_every == 0:
            journal.add(saved=step, digest=digest_of(model, optimizer))
            if step == options.lose_rank_at and rank == ranks - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            ck.save(step, state)  # Shoal: returns when the state is copied
            if step in (options.kill_at, options.lose_rank_at):
                os.kill(os.getpid(), signal.SIGKILL)
    ck.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
