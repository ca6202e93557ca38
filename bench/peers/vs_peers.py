#!/usr/bin/env python3
"""Shoal beside other libraries: the same state, ranks, machine and file system, in one run.

    PYTHONPATH=build/release/python build/venv/bin/python bench/peers/vs_peers.py [--root FOLDER ...]

Prints Markdown tables. Needs PyTorch; a library that is not installed is named and left out:

    build/venv/bin/pip install torch_checkpointing safetensors jax orbax-checkpoint

Columns:
    blocked   from the call of save until the trainer may change its state, the slowest rank
    durable   from the call until all bytes are on disk: what the library does, then fsync of every file and
              folder that it has written, unless it has synced them itself
    load      into the tensors of the trainer; on disk with no file in the page cache
    memory    peak of all processes of the job during a save and a load, less what it was before: PSS, in a
              round of its own
    extra     bytes in the folder of a checkpoint that are not tensors: headers, metadata, padding

The state has float32 tensors that are sharded by rows. They change before each save, and each load is
compared with what was saved. Times are medians over rounds, after two that warm up. The libraries take turns
(--passes), so that what the machine does meanwhile meets all of them.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import typing

WARM_UP_ROUNDS = 2
SAMPLE_S = 0.02
MARK = "SHOAL_VS_PEERS"  # in the environment of every process of a job, its node included


# ---- one rank ----


def slowest(seconds: float) -> float:
    import torch
    import torch.distributed as dist

    value = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return float(value.item())


def files_of(folder: str) -> list[str]:
    return [os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names]


def sync(folder: str) -> None:
    for path in [*files_of(folder), *(parent for parent, _, _ in os.walk(folder)), os.path.dirname(folder)]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def evict(folder: str) -> None:
    for path in files_of(folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


class Rank:
    def __init__(self, options: argparse.Namespace, folder: str) -> None:
        import torch
        import torch.distributed as dist

        from contenders import CONTENDERS, ROW_ELEMENTS

        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.torch, self.barrier = torch, dist.barrier
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.folder = pathlib.Path(folder)
        rows = max(1, options.size // options.tensors // (4 * ROW_ELEMENTS))
        self.local = {
            f"layers.{i}.weight": torch.zeros((rows, ROW_ELEMENTS)) for i in range(options.tensors)
        }
        generator = torch.Generator().manual_seed(self.rank)
        self.random = [torch.rand((rows, ROW_ELEMENTS), generator=generator) for _ in range(7)]
        self.payload = self.ranks * sum(each.numel() * 4 for each in self.local.values())
        self.mark("baseline")
        root = self.folder / "root"
        root.mkdir(exist_ok=True)
        self.contender = CONTENDERS[options.only[0]](self.rank, self.ranks, str(root), self.local)
        self.evicts = options.evict

    def mark(self, name: str) -> None:
        """Tells the process that samples memory what happens now."""
        self.barrier()
        if self.rank == 0:
            (self.folder / name).touch()
            time.sleep(3 * SAMPLE_S)
        self.barrier()

    def expected(self, step: int, i: int) -> typing.Any:
        """The values of tensor i of this rank in a step. They do not compress: one library compresses."""
        return self.random[i % len(self.random)] + step

    def fill(self, step: int) -> None:
        for i, tensor in enumerate(self.local.values()):
            tensor.copy_(self.expected(step, i))

    def round(self, step: int) -> dict[str, float]:
        out = {}
        contender = self.contender
        self.fill(step)
        contender.before_save()
        self.barrier()
        begun = time.perf_counter()
        pending = contender.save(step)
        out["blocked"] = slowest(time.perf_counter() - begun)
        contender.wait(pending)
        if not contender.is_durable:
            self.barrier()  # all files exist
            if self.rank == 0:
                sync(contender.folder(step))
        out["durable"] = slowest(time.perf_counter() - begun)
        if self.rank == 0:
            out["bytes"] = sum(os.stat(path).st_size for path in files_of(contender.folder(step)))
            if self.evicts:
                evict(contender.folder(step))
        for tensor in self.local.values():
            tensor.zero_()
        self.barrier()
        begun = time.perf_counter()
        contender.load(step)
        out["load"] = slowest(time.perf_counter() - begun)
        contender.after_load()
        self.compare(step)
        self.barrier()
        if self.rank == 0:
            contender.remove(step)
        return out

    def compare(self, step: int) -> None:
        for i, (name, tensor) in enumerate(self.local.items()):
            if not self.torch.equal(tensor, self.expected(step, i)):
                raise SystemExit(f"rank {self.rank}, step {step}: '{name}' is not what was saved")

    def run(self, rounds: int) -> None:
        results = [self.round(step) for step in range(1, WARM_UP_ROUNDS + rounds + 1)][WARM_UP_ROUNDS:]
        self.mark("sampled")
        self.round(WARM_UP_ROUNDS + rounds + 1)
        self.mark("done")
        self.contender.close()
        if self.rank == 0:
            with open(self.folder / "result.json", "w") as stream:
                json.dump({"rounds": results, "payload": self.payload}, stream)


# ---- the job ----


class Memory(threading.Thread):
    """Samples the proportional set size of all processes of a job, while the job says so."""

    def __init__(self, folder: pathlib.Path, mark: str) -> None:
        super().__init__(daemon=True)
        self._folder, self._mark = folder, f"{MARK}={mark}".encode()
        self.baseline = self.peak = 0
        self.ended = threading.Event()

    def _pss(self) -> int:
        total = 0
        for process in pathlib.Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            try:
                if self._mark not in (process / "environ").read_bytes().split(b"\0"):
                    continue
                for line in (process / "smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1]) << 10
            except OSError:  # it has ended
                continue
        return total

    def run(self) -> None:
        while not self.ended.wait(SAMPLE_S):
            if (self._folder / "baseline").exists() and not self.baseline:
                self.baseline = self._pss()
            elif (self._folder / "sampled").exists() and not (self._folder / "done").exists():
                self.peak = max(self.peak, self._pss())


def run_job(name: str, ranks: int, root: str, options: argparse.Namespace) -> dict[str, typing.Any]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="vs-peers-", dir=root))
    mark = secrets.token_hex(8)
    environment = dict(
        os.environ,
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(20000 + secrets.randbelow(20000)),
        WORLD_SIZE=str(ranks),
        SHOAL_JOB_ID=mark,
        JAX_PLATFORMS="cpu",
    )
    environment[MARK] = mark
    command = [sys.executable, os.path.abspath(__file__), "--rank-in", str(folder), "--only", name]
    command += ["--size", str(options.size), "--tensors", str(options.tensors)]
    command += ["--rounds", str(options.rounds)] + (["--evict"] if not is_memory(root) else [])
    memory = Memory(folder, mark)
    memory.start()
    log = open(folder / "log", "w+")
    processes = [
        subprocess.Popen(command, env=dict(environment, RANK=str(rank)), stdout=log, stderr=log)
        for rank in range(ranks)
    ]
    try:
        deadline = time.monotonic() + options.timeout
        while any(each.poll() is None for each in processes):
            if any(each.poll() for each in processes) or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        memory.ended.set()
        memory.join()
        result = folder / "result.json"
        if any(each.poll() != 0 for each in processes) or not result.exists():
            log.seek(0)
            return {"error": log.read()[-2000:] or "it did not end in time"}
        found = json.loads(result.read_text())
        return {**found, "memory": memory.peak - memory.baseline}
    finally:
        for each in processes:
            if each.poll() is None:
                each.kill()
            each.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def is_memory(root: str) -> bool:
    output = subprocess.run(["stat", "-f", "-c", "%T", root], capture_output=True, text=True, check=True)
    return output.stdout.strip() in ("tmpfs", "ramfs")


# ---- the tables ----


def text_bytes(value: float) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


def text_seconds(value: float) -> str:
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def table(rows: dict[str, dict[str, typing.Any]], reference: str) -> list[str]:
    """Times are followed by their ratio to those of the reference."""
    lines = ["| library | blocked | durable | load | memory | extra |", "|---|---|---|---|---|---|"]
    base = rows.get(reference, {})
    base = base if "blocked" in base else {}
    for name, row in rows.items():
        if "error" in row:
            lines.append(f"| {name} | did not run to its end | | | | |")
            continue
        cells = []
        for column in ("blocked", "durable", "load"):
            ratio = f", ×{row[column] / base[column]:.2f}" if base and name != reference else ""
            cells.append(text_seconds(row[column]) + ratio)
        lines.append(
            f"| {name} | {' | '.join(cells)} | {text_bytes(row['memory'])} | {text_bytes(row['extra'])} |"
        )
    return lines


def summarize(jobs: list[dict[str, typing.Any]]) -> dict[str, typing.Any]:
    failed = [job for job in jobs if "error" in job]
    if failed:
        return failed[0]
    rounds = [each for job in jobs for each in job["rounds"]]
    out = {
        column: statistics.median(each[column] for each in rounds)
        for column in ("blocked", "durable", "load")
    }
    out["memory"] = max(job["memory"] for job in jobs)
    out["extra"] = rounds[0]["bytes"] - jobs[0]["payload"]
    return out


def installed(name: str) -> bool:
    import importlib.util

    from contenders import CONTENDERS

    module = CONTENDERS[name].module
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def compare(ranks: int, root: str, names: list[str], options: argparse.Namespace) -> dict[str, typing.Any]:
    from contenders import CONTENDERS

    jobs: dict[str, list[dict[str, typing.Any]]] = collections.defaultdict(list)
    for turn in range(options.passes):
        for name in names:
            if CONTENDERS[name].ranks_max < ranks:
                continue
            print(f"vs_peers: {name}, {ranks} ranks, turn {turn + 1} of {options.passes}", file=sys.stderr)
            jobs[name].append(run_job(name, ranks, root, options))
            if "error" in jobs[name][-1]:
                print(jobs[name][-1]["error"], file=sys.stderr)
    return {name: summarize(done) for name, done in jobs.items()}


def title_of(figure: dict[str, typing.Any], options: argparse.Namespace) -> str:
    ranks, kind = figure["ranks"], figure["kind"]
    return f"{ranks} × {text_bytes(options.size)}, {options.tensors} tensors, {kind}"


def plot(options: argparse.Namespace, figures: list[dict[str, typing.Any]]) -> bool:
    from chart import svg

    panels = [(title_of(each, options), each["rows"]) for each in figures]
    panels = [panel for panel in panels if any("blocked" in row for row in panel[1].values())]
    if panels:
        with open(options.plot, "w") as stream:
            stream.write(svg(panels))
    return bool(panels)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", action="append", help="a folder of a file system to measure; default /dev/shm and here"
    )
    parser.add_argument(
        "--ranks", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2, 4]
    )
    parser.add_argument("--size", type=int, default=64 << 20, help="bytes of a rank (default 64 MiB)")
    parser.add_argument("--tensors", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5, help="of a turn")
    parser.add_argument("--passes", type=int, default=2, help="turns of each library")
    parser.add_argument("--only", action="append", metavar="LIBRARY", help="may be repeated; see --list")
    parser.add_argument("--list", action="store_true", help="print the names of the libraries")
    parser.add_argument("--json", metavar="FILE", help="also write all figures to a file")
    parser.add_argument("--plot", metavar="FILE.svg", help="also draw all tables")
    parser.add_argument("--timeout", type=float, default=300, help="seconds of one job (default 300)")
    parser.add_argument("--rank-in", help=argparse.SUPPRESS)
    parser.add_argument("--evict", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.tensors = max(1, min(options.tensors, options.size // 1024))
    return options


def main() -> int:
    options = parse(None)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    if options.rank_in:
        Rank(options, options.rank_in).run(options.rounds)
        return 0
    from contenders import CONTENDERS

    if options.list:
        print("\n".join(CONTENDERS))
        return 0
    names = options.only or list(CONTENDERS)
    unknown = [name for name in names if name not in CONTENDERS]
    if unknown:
        print(f"vs_peers: no library is called '{unknown[0]}'; --list prints the names", file=sys.stderr)
        return 2
    figures, failed = [], False
    for root in map(os.path.abspath, options.root or ["/dev/shm", "."]):
        for ranks in options.ranks:
            rows = compare(ranks, root, [name for name in names if installed(name)], options)
            kind = "tmpfs" if is_memory(root) else "disk"
            figures.append({"ranks": ranks, "root": root, "kind": kind, "rows": rows})
            print(f"\n{title_of(figures[-1], options)}:\n")
            print("\n".join(table(rows, names[0])), flush=True)
            failed = failed or any("error" in row for row in rows.values())
    missing = [name for name in names if not installed(name)]
    if missing:
        print(f"\nNot installed, and not measured: {', '.join(missing)}.")
    if options.json:
        with open(options.json, "w") as stream:
            facts = {"size": options.size, "tensors": options.tensors, "figures": figures}
            json.dump(facts, stream, indent=1)
    if options.plot and not plot(options, figures):
        print("vs_peers: no library ran to its end, so that there is nothing to draw", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
