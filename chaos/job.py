"""One job: launchers, nodes and trainers on some hosts, and what the trainers were told."""

import dataclasses
import os
import re
import signal
import subprocess
import time

from audit import Attempt, Model
from hosts import Host, kill

# Short, so that a save that cannot commit ends within a round.
DEADLINES = {
    "--attempt-deadline-ms": 4000,
    "--node-deadline-ms": 8000,
    "--host-lost-ms": 2500,
    "--find-coordinator-ms": 6000,
    "--drain-patience-ms": 1000,
    "--epoch-check-ms": 500,
    "--abandoned-after-ms": 1000,
}
NODE_DEADLINE_S = DEADLINES["--node-deadline-ms"] / 1000
PORT = 7070
SHARDINGS = {  # and whether so many ranks can be divided so
    "fsdp": lambda ranks: True,
    "tp": lambda ranks: True,
    "replicas": lambda ranks: True,
    "fsdp+tp": lambda ranks: ranks % 2 == 0,
    "hsdp": lambda ranks: ranks % 2 == 0,
    "pipeline": lambda ranks: ranks % 2 == 0,
}


@dataclasses.dataclass
class Plan:
    """What a job is. All ranks of a host train there, and host 0 coordinates."""

    number: int
    hosts: int
    ranks_per_host: int
    sharding: str
    mode: str
    saves: int
    train_ms: int
    waits: bool  # for each save, before it trains on
    keep_last: int | None
    falls_back: bool  # a load may pass over damaged checkpoints

    @property
    def ranks(self) -> int:
        return self.hosts * self.ranks_per_host

    def __str__(self) -> str:
        return (
            f"{self.hosts} x {self.ranks_per_host} ranks, {self.sharding}, {self.mode}, {self.saves} saves"
            f"{'' if self.waits else ' in flight'}, {self.train_ms} ms between them"
            f"{f', keeps {self.keep_last}' if self.keep_last else ''}"
        )


@dataclasses.dataclass
class History:
    """What the trainers of a job printed, by rank. Steps with what was said of them."""

    loaded: dict[int, Attempt] = dataclasses.field(default_factory=dict)
    started_anew: set[int] = dataclasses.field(default_factory=set)
    committed: dict[int, set[int]] = dataclasses.field(default_factory=dict)  # step: ranks
    failed: dict[int, dict[int, str]] = dataclasses.field(default_factory=dict)  # step: rank: cause
    staged: dict[int, set[int]] = dataclasses.field(default_factory=dict)
    errors: list[str] = dataclasses.field(default_factory=list)  # how trainers ended
    generation: int | None = None

    def aborted(self, step: int) -> dict[int, str]:
        """Ranks that were told that this save is aborted. The cause of one whose call reports an earlier
        save, and which is staged nevertheless, contains the abort of that one."""
        causes = self.failed.get(step, {})
        return {rank: cause for rank, cause in causes.items() if cause.startswith("aborted:")}

    def read(self, text: str) -> None:
        for line in text.splitlines():
            if found := re.search(r" generation (\d+), epoch", line):
                self.generation = int(found[1])
            if not (found := re.match(r"rank (\d+): (.*)", line)):
                continue
            rank, said = int(found[1]), found[2]
            if found := re.match(r"loaded step (\d+) \(g(\d+)a(\d+)\)", said):
                self.loaded[rank] = Attempt(int(found[2]), int(found[3]), int(found[1]))
            elif said.startswith("no checkpoint"):
                self.started_anew.add(rank)
            elif found := re.match(r"step (\d+): committed", said):
                self.committed.setdefault(int(found[1]), set()).add(rank)
            elif found := re.match(r"step (\d+): not committed: (.*)", said):
                self.failed.setdefault(int(found[1]), {})[rank] = found[2]
            elif found := re.match(r"step (\d+)(?: \(first\))?: staged", said):
                self.staged.setdefault(int(found[1]), set()).add(rank)
            else:
                self.errors.append(line)


class Job:
    """A running job. Logs and protocol logs lie in `folder`."""

    def __init__(
        self,
        plan: Plan,
        hosts: list[Host],
        folder: str,
        root: str,
        program: str,
        trainer: list[str],
        model: Model,
        name: str,
        transport: str,
    ):
        self.plan, self.hosts, self.folder = plan, hosts[: plan.hosts], folder
        os.makedirs(folder)
        token = os.path.join(folder, "token")
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(name.rjust(32, "t") + "\n")
        self.began = time.monotonic()
        self._launchers: list[subprocess.Popen] = []
        for host in self.hosts:
            command = [
                program,
                "launch",
                "-n",
                str(plan.ranks_per_host),
                "--root",
                root,
                "--create",
                "--transport",
                transport,
                "--protocol-log",
                f"{folder}/{host.name}.protocol",
            ]
            if plan.hosts > 1:
                command += [
                    "--nnodes",
                    str(plan.hosts),
                    "--node-rank",
                    str(host.number),
                    "--job-id",
                    name,
                    "--coordinator",
                    f"{self.hosts[0].address}:{PORT}",
                    "--token-file",
                    token,
                ]
            for flag, value in DEADLINES.items():
                command += [flag, str(value)]
            if plan.keep_last:
                command += ["--keep-last", str(plan.keep_last)]
            if plan.falls_back:
                command += ["--load-fallback", "previous"]
            command += [
                "--",
                *trainer,
                *model.arguments(),
                "--load",
                "resume",
                "--saves",
                str(plan.saves),
                "--train-ms",
                str(plan.train_ms),
                "--keep-going",
                "--sharding",
                plan.sharding,
                "--mode",
                plan.mode,
                *(["--wait"] if plan.waits else []),
            ]
            runtime = os.path.join(host.folder, "run")
            os.makedirs(runtime, mode=0o700, exist_ok=True)
            with (
                open(f"{folder}/{host.name}.out", "wb") as out,
                open(f"{folder}/{host.name}.err", "wb") as err,
            ):
                self._launchers.append(host.run(command, {"SHOAL_RUNTIME_DIR": runtime}, out, err))

    def is_running(self) -> bool:
        return any(launcher.poll() is None for launcher in self._launchers)

    def statuses(self) -> list[int | None]:
        return [launcher.poll() for launcher in self._launchers]

    def wait(self, seconds: float) -> bool:
        """False: it still runs after so long."""
        deadline = time.monotonic() + seconds
        while self.is_running():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def processes(self, host: Host) -> dict[str, list[int]]:
        """The pids of launchers, nodes and trainers of a host."""
        found: dict[str, list[int]] = {"launcher": [], "node": [], "trainer": []}
        for pid, line in host.processes().items():
            if len(line) > 1 and line[1] == "launch":
                found["launcher"].append(pid)
            elif len(line) > 1 and line[1] == "node":
                found["node"].append(pid)
            elif "--saves" in line:
                found["trainer"].append(pid)
        return found

    def terminate(self) -> None:
        """Asks all launchers to end the job, as the manager of a cluster does."""
        for host in self.hosts:
            for pid in self.processes(host)["launcher"]:
                kill(pid, signal.SIGTERM)

    def kill(self) -> None:
        for host in self.hosts:
            for pid in host.processes():
                kill(pid, signal.SIGKILL)
        for launcher in self._launchers:
            launcher.wait()

    def history(self) -> History:
        history = History()
        for host in self.hosts:
            for suffix in ("out", "err"):
                with open(f"{self.folder}/{host.name}.{suffix}", errors="replace") as file:
                    history.read(file.read())
        return history

    def lost_a_node_that_did_not_serve(self) -> bool:
        """A node was killed before it was ready, or while it stopped. A launcher starts no other one then."""
        texts = ("ended before it was ready", "did not stop cleanly")
        for host in self.hosts:
            with open(f"{self.folder}/{host.name}.err", errors="replace") as file:
                if any(text in line for line in file for text in texts):
                    return True
        return False
