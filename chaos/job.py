"""One job: launchers, nodes and trainers on some hosts, and what the trainers were told."""

import dataclasses
import glob
import os
import re
import signal
import subprocess
import time

from audit import Attempt, Model
from hosts import Host, kill

# Short, so that a save that cannot commit ends within a round.
DEADLINES = {
    "attempt-deadline-ms": 4000,
    "node-deadline-ms": 8000,
    "host-lost-ms": 2500,
    "find-coordinator-ms": 6000,
    "drain-patience-ms": 1000,
    "epoch-check-ms": 500,
    "abandoned-after-ms": 1000,
}
NODE_DEADLINE_S = DEADLINES["node-deadline-ms"] / 1000
PORT = 7070
# Who starts the trainers: `shoal launch`, which also starts the nodes; a launcher that gives a job id; or one
# that gives none, as torchrun. Trainers of the last two start the nodes.
STARTERS = ["launch", "job-id", "torchrun"]
ATTACH_TIMEOUT_S = 10.0  # of trainers that start their nodes
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
    starter: str = "launch"  # one of STARTERS

    @property
    def ranks(self) -> int:
        return self.hosts * self.ranks_per_host

    def __str__(self) -> str:
        return (
            f"{self.hosts} x {self.ranks_per_host} ranks, {self.sharding}, {self.mode}, {self.saves} saves"
            f"{'' if self.waits else ' in flight'}, {self.train_ms} ms between them"
            f"{f', keeps {self.keep_last}' if self.keep_last else ''}"
            f"{'' if self.starter == 'launch' else f', {self.starter}'}"
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

    def read_generation(self, text: str) -> None:
        for found in re.finditer(r" generation (\d+), epoch", text):
            self.generation = max(self.generation or 0, int(found[1]))

    def read(self, text: str) -> None:
        self.read_generation(text)
        for line in text.splitlines():
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
        self._logs: list[str] = []  # what launchers, or trainers, print
        self._node_logs: dict[str, int] = {}  # and where in it the job begins
        arguments = [
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
        settings = {f"--{name}": str(value) for name, value in DEADLINES.items()}
        settings["--transport"] = transport
        if plan.keep_last:
            settings["--keep-last"] = str(plan.keep_last)
        if plan.falls_back:
            settings["--load-fallback"] = "previous"
        for host in self.hosts:
            settings["--protocol-log"] = f"{folder}/{host.name}.protocol"
            if plan.starter == "launch":
                self._launch(host, root, program, arguments, settings, name, token)
            else:
                self._start_trainers(host, root, program, arguments, settings, name, token)

    def _run(self, host: Host, command: list[str], variables: dict[str, str], name: str) -> None:
        runtime = os.path.join(host.folder, "run")
        os.makedirs(runtime, mode=0o700, exist_ok=True)
        variables["SHOAL_RUNTIME_DIR"] = runtime
        logs = [f"{self.folder}/{name}.out", f"{self.folder}/{name}.err"]
        with open(logs[0], "wb") as out, open(logs[1], "wb") as err:
            self._launchers.append(host.run(command, variables, out, err))
        self._logs += logs

    def _launch(
        self,
        host: Host,
        root: str,
        program: str,
        arguments: list[str],
        settings: dict[str, str],
        name: str,
        token: str,
    ) -> None:
        command = [program, "launch", "-n", str(self.plan.ranks_per_host), "--root", root, "--create"]
        for flag, value in settings.items():
            command += [flag, value]
        if self.plan.hosts > 1:
            command += ["--nnodes", str(self.plan.hosts), "--node-rank", str(host.number), "--job-id", name]
            command += ["--coordinator", f"{self.hosts[0].address}:{PORT}", "--token-file", token]
        self._run(host, [*command, "--", *arguments], {}, host.name)

    def _start_trainers(
        self,
        host: Host,
        root: str,
        program: str,
        arguments: list[str],
        settings: dict[str, str],
        name: str,
        token: str,
    ) -> None:
        plan = self.plan
        for log in glob.glob(os.path.join(host.folder, "run", "*.log")):
            self._node_logs[log] = os.path.getsize(log)
        for local_rank in range(plan.ranks_per_host):
            variables = {"SHOAL" + flag[1:].replace("-", "_").upper(): v for flag, v in settings.items()}
            variables |= {
                "SHOAL_ROOT": root,
                "SHOAL_NODE_PROGRAM": program,
                "SHOAL_TOKEN_FILE": token,
                "SHOAL_ATTACH_TIMEOUT_MS": str(int(ATTACH_TIMEOUT_S * 1000)),
                "RANK": str(host.number * plan.ranks_per_host + local_rank),
                "WORLD_SIZE": str(plan.ranks),
                "LOCAL_RANK": str(local_rank),
                "LOCAL_WORLD_SIZE": str(plan.ranks_per_host),
                "GROUP_RANK": str(host.number),
                "MASTER_ADDR": self.hosts[0].address,
                "MASTER_PORT": "29500",
            }
            variables["TORCHELASTIC_RUN_ID" if plan.starter == "torchrun" else "SHOAL_JOB_ID"] = name
            self._run(host, arguments, variables, f"{host.name}.{local_rank}")

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

    def continue_starters(self) -> None:
        """nsenter stops itself when the process that it started is stopped."""
        for launcher in self._launchers:
            if launcher.poll() is None:
                launcher.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Asks all launchers to end the job, as the manager of a cluster does. Without launchers it ends the
        trainers, and leaves their nodes."""
        what = "launcher" if self.plan.starter == "launch" else "trainer"
        for host in self.hosts:
            for pid in self.processes(host)[what]:
                kill(pid, signal.SIGTERM)

    def wait_for_nodes(self, seconds: float) -> bool:
        """False: a node still runs after so long."""
        deadline = time.monotonic() + seconds
        while any(self.processes(host)["node"] for host in self.hosts):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def kill(self) -> None:
        for host in self.hosts:
            for pid in host.processes():
                kill(pid, signal.SIGKILL)
        for launcher in self._launchers:
            launcher.wait()

    def history(self) -> History:
        history = History()
        for log in self._logs:
            with open(log, errors="replace") as file:
                history.read(file.read())
        for host in self.hosts if self.plan.starter != "launch" else []:
            for log in glob.glob(os.path.join(host.folder, "run", "*.log")):
                with open(log, errors="replace") as file:
                    file.seek(self._node_logs.get(log, 0))
                    text = file.read()
                with open(f"{self.folder}/{host.name}.node.log", "w") as copy:
                    copy.write(text)
                history.read_generation(text)
        return history

    def lost_a_node_that_did_not_serve(self) -> bool:
        """A node was killed before it was ready, or while it stopped. A launcher starts no other one then."""
        texts = ("ended before it was ready", "did not stop cleanly")
        for log in self._logs:
            with open(log, errors="replace") as file:
                if any(text in line for line in file for text in texts):
                    return True
        return False
