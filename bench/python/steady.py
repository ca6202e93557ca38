"""What a save costs in Python in the steady state of a training loop: the same tensors again and again.

    PYTHONPATH=build/release/python build/venv/bin/python bench/python/steady.py [TENSORS]     default: 10000

Measures the time of the processor that Python needs to find that a state is that of the save before, per
state: the least of many repetitions, because other programs on the machine make it longer. Target: 200 ns a
tensor, which is 2 ms for 10,000. Numbers of state_dict are torch's own and not part of the target.
"""

from __future__ import annotations

import sys
import tempfile
import time

import torch

import shoal

REPETITIONS = 60
NS_A_TENSOR_MAX = 200


def least_ms(action) -> float:
    least = float("inf")
    for _ in range(REPETITIONS):
        begun = time.thread_time()
        action()
        least = min(least, time.thread_time() - begun)
    return least * 1e3


def trained(tensors: int):
    """A model and an AdamW with three tensors of state for each parameter."""
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(tensors // 8)])
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return model, optimizer


def main() -> None:
    tensors = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    model, optimizer = trained(tensors)
    kept = {"model": model.state_dict(keep_vars=True), "optim": optimizer.state_dict()}
    flat = {f"layers.{i}.weight": torch.zeros(4) for i in range(tensors)}
    objects = {"m": model, "o": optimizer}
    states = {"a flat dict": flat, "nested state dicts": kept, "module and AdamW": objects}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        with shoal.Checkpointer(root, node={"keep_last": 1}) as ck:
            own = least_ms(lambda: (model.state_dict(keep_vars=True), optimizer.state_dict()))
            for name, state in states.items():
                ck._pack(state, False, is_repeated=True)
                assert ck._steady is not None, f"{name}: a save of it is never repeated"
                took = least_ms(lambda: ck._pack(state, False))
                a_tensor = took * 1e6 / tensors
                verdict = "within" if a_tensor <= NS_A_TENSOR_MAX else "above"
                print(f"{name}: {took:.2f} ms, {a_tensor:.0f} ns a tensor ({verdict} {NS_A_TENSOR_MAX} ns)")
            print(f"of the last, torch's own state_dict: {own:.2f} ms")


if __name__ == "__main__":
    main()
