"""Failures of real processes, hosts, networks and storage: what each does, and how it ends."""

import dataclasses
import fcntl
import os
import random
import shutil
import signal
import struct
import threading
import time

from hosts import Host, call, kill
from job import Job
from network import Path, Switch

FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
EXT4_IOC_SHUTDOWN = 0x8004587D
SHUT_DOWN_WITHOUT_LOG = 2  # what was not synced is lost, as when the power fails
ROOT_BYTES = 192 << 20
# The events at which failures are aimed: messages, as protocol logs name them.
MESSAGES = ["JoinRanks", "RosterUpdate", "ShardsWritten", "Pending", "Decided", "JoinLoad", "LoadRoster"]


class Storage:
    """A file system in a file of `folder`, mounted at `path`, that can fill up, hang and lose its power.

    The hosts see it because it is mounted before they start. So power_on() needs all hosts to be down.
    """

    def __init__(self, folder: str):
        self._folder, self.path = folder, os.path.join(folder, "shared")
        self._image = os.path.join(folder, "disk-0")
        self._power_cuts = 0
        self._filler = os.path.join(self.path, "filler")
        self.is_frozen = False
        os.makedirs(self.path)
        with open(self._image, "wb") as file:
            file.truncate(ROOT_BYTES)
        call("mkfs.ext4", "-q", "-F", self._image)
        call("mount", "-o", "loop", self._image, self.path)
        self.root = os.path.join(self.path, "root")
        os.mkdir(self.root)
        os.sync()

    def _control(self, request: int, argument: bytes) -> None:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, request, argument)
        finally:
            os.close(descriptor)

    def freeze(self) -> None:
        """All writes hang until thaw()."""
        self._control(FIFREEZE, bytes(4))
        self.is_frozen = True

    def thaw(self) -> None:
        if self.is_frozen:
            self._control(FITHAW, bytes(4))
            self.is_frozen = False

    def fill(self) -> None:
        """Leaves no room until free()."""
        with open(self._filler, "ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass

    def free(self) -> None:
        if os.path.exists(self._filler):
            os.remove(self._filler)

    def power_off(self) -> None:
        """From now on every access fails, and what was not synced is lost."""
        self._control(EXT4_IOC_SHUTDOWN, struct.pack("I", SHUT_DOWN_WITHOUT_LOG))

    def power_on(self) -> None:
        """Mounts a copy of the disk: another mount namespace of this machine may still hold the dead one."""
        call("umount", "-l", self.path)
        dead = self._image
        self._power_cuts += 1
        self._image = os.path.join(self._folder, f"disk-{self._power_cuts}")
        call("cp", "--sparse=always", dead, self._image)
        os.remove(dead)
        call("mount", "-o", "loop", self._image, self.path)

    def close(self) -> None:
        self.thaw()
        try:
            call("umount", self.path)
        except Exception:
            call("umount", "-l", self.path)


@dataclasses.dataclass
class Failure:
    """One failure of a job. It begins `after_s` after the job, or then at the next `message` on its host."""

    kind: str
    host: int
    after_s: float
    message: str | None
    for_s: float  # 0: it does not end by itself
    path: Path | None = None

    # Such a failure must cost no save: the node is started again, or the time is shorter than every deadline.
    @property
    def is_harmless(self) -> bool:
        if self.kind == "kill-node":
            return True
        if self.kind == "slow-network":
            return self.path.loss <= 0.01
        return (
            self.kind in ("stop-trainer", "stop-node", "cut", "cut-one-way", "storage-hangs")
            and self.for_s <= 1
        )

    def __str__(self) -> str:
        text = f"{self.kind} on h{self.host} after {self.after_s:.2f} s"
        if self.message:
            text += f" at {self.message}"
        if self.for_s:
            text += f" for {self.for_s:.2f} s"
        if self.path:
            text += (
                f" (loss {self.path.loss:.1%}, doubled {self.path.doubled:.1%}, delay"
                f" {self.path.delay_s * 1e3:.0f} to {(self.path.delay_s + self.path.jitter_s) * 1e3:.0f} ms)"
            )
        return text


# The kinds, each with how often it is drawn.
KINDS = {
    "kill-trainer": 2,
    "kill-node": 4,
    "kill-launcher": 1,
    "kill-host": 2,
    "stop-trainer": 2,
    "stop-node": 3,
    "cut": 3,
    "cut-one-way": 2,
    "slow-network": 2,
    "disk-full": 2,
    "storage-hangs": 2,
    "power-cut": 2,
}
OF_SEVERAL_HOSTS = ("cut", "cut-one-way", "slow-network")


def draw_failures(rng: random.Random, kinds: list[str], hosts: int, duration_s: float) -> list[Failure]:
    possible = [kind for kind in kinds if hosts > 1 or kind not in OF_SEVERAL_HOSTS]
    if not possible or rng.random() < 0.1:  # a calm job
        return []
    failures = []
    for kind in rng.choices(possible, [KINDS[kind] for kind in possible], k=rng.choice([1, 1, 2, 3])):
        ends = kind in (
            "stop-trainer",
            "stop-node",
            "cut",
            "cut-one-way",
            "slow-network",
            "disk-full",
            "storage-hangs",
        )
        for_s = (rng.uniform(0.05, 1) if rng.random() < 0.5 else rng.uniform(1, 6)) if ends else 0.0
        path = None
        if kind == "slow-network":
            path = Path(
                loss=rng.choice([0, 0.002, 0.01, 0.05]),
                doubled=rng.choice([0, 0.05]),
                delay_s=rng.choice([0, 0.002, 0.02]),
                jitter_s=rng.choice([0, 0.005, 0.03]),
            )
        failures.append(
            Failure(
                kind,
                rng.randrange(hosts),
                rng.uniform(0, duration_s),
                rng.choice(MESSAGES) if rng.random() < 0.5 else None,
                for_s,
                path,
            )
        )
    return failures


class Attack:
    """Carries out the failures of one job, each in a thread of its own. `log` lists what was really done."""

    def __init__(
        self,
        failures: list[Failure],
        job: Job,
        hosts: list[Host],
        switch: Switch,
        storage: Storage,
        rng: random.Random,
    ):
        self._job, self._hosts, self._switch, self._storage = job, hosts, switch, storage
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self.log: list[str] = []
        self.done: set[str] = set()  # kinds
        self.power_is_off = False
        self._threads = [
            threading.Thread(target=self._carry_out, args=(failure, rng.random()), daemon=True)
            for failure in failures
        ]
        for thread in self._threads:
            thread.start()

    def is_over(self) -> bool:
        """Every failure has ended, or lasts until the job ends."""
        return not any(thread.is_alive() for thread in self._threads)

    def end(self) -> None:
        """Ends all failures. Hosts that died stay down."""
        self._ends.set()
        for thread in self._threads:
            thread.join()
        self._switch.heal()
        self._storage.thaw()
        if not self.power_is_off:
            self._storage.free()

    def _note(self, what: str) -> None:
        with self._lock:
            self.log.append(f"{time.monotonic() - self._job.began:.3f} s: {what}")

    def _carry_out(self, failure: Failure, draw: float) -> None:
        if self._ends.wait(failure.after_s) or not self._message_came(failure):
            return
        host = self._job.hosts[failure.host]
        if not host.is_up or self.power_is_off:
            return
        action = getattr(self, "_" + failure.kind.replace("-", "_"))
        if action(failure, host, draw):
            self.done.add(failure.kind)

    def _message_came(self, failure: Failure) -> bool:
        """Waits at most 3 s for the message, then goes on without it."""
        if failure.message is None:
            return True
        name = f"{self._job.folder}/h{failure.host}.protocol"
        try:
            begin = os.path.getsize(name)
        except OSError:
            begin = 0
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            try:
                with open(name, "rb") as file:
                    file.seek(begin)
                    if failure.message.encode() in file.read():
                        return True
            except OSError:
                pass
            if self._ends.wait(0.003):
                return False
        return True

    def _victim(self, what: str, host: Host, draw: float) -> int | None:
        pids = self._job.processes(host)[what]
        return pids[int(draw * len(pids))] if pids else None

    def _kill(self, what: str, host: Host, draw: float) -> bool:
        pid = self._victim(what, host, draw)
        if pid is None or not kill(pid, signal.SIGKILL):
            return False
        self._note(f"killed a {what} of {host.name}")
        return True

    def _kill_trainer(self, failure: Failure, host: Host, draw: float) -> bool:
        return self._kill("trainer", host, draw)

    def _kill_node(self, failure: Failure, host: Host, draw: float) -> bool:
        return self._kill("node", host, draw)

    def _kill_launcher(self, failure: Failure, host: Host, draw: float) -> bool:
        return self._kill("launcher", host, draw)

    def _kill_host(self, failure: Failure, host: Host, draw: float) -> bool:
        host.kill()
        self._note(f"host {host.name} died")
        return True

    def _stop(self, what: str, failure: Failure, host: Host, draw: float) -> bool:
        pid = self._victim(what, host, draw)
        if pid is None or not kill(pid, signal.SIGSTOP):
            return False
        self._note(f"stopped a {what} of {host.name}")
        self._ends.wait(failure.for_s)
        kill(pid, signal.SIGCONT)
        self._job.continue_starters()
        self._note(f"continued the {what} of {host.name}")
        return True

    def _stop_trainer(self, failure: Failure, host: Host, draw: float) -> bool:
        return self._stop("trainer", failure, host, draw)

    def _stop_node(self, failure: Failure, host: Host, draw: float) -> bool:
        return self._stop("node", failure, host, draw)

    def _harm_network(self, failure: Failure, pairs: list[tuple[int, int]], path: Path, what: str) -> bool:
        for source, to in pairs:
            self._switch.set_path(source, to, path)
        self._note(what)
        self._ends.wait(failure.for_s)
        for source, to in pairs:
            self._switch.set_path(source, to, None)
        self._note(f"end of: {what}")
        return True

    def _cut(self, failure: Failure, host: Host, draw: float) -> bool:
        others = [other.number for other in self._job.hosts if other is not host]
        pairs = [(host.number, other) for other in others] + [(other, host.number) for other in others]
        return self._harm_network(failure, pairs, Path(is_cut=True), f"{host.name} is cut off")

    def _cut_one_way(self, failure: Failure, host: Host, draw: float) -> bool:
        others = [other.number for other in self._job.hosts if other is not host]
        if draw < 0.5:
            return self._harm_network(
                failure,
                [(host.number, other) for other in others],
                Path(is_cut=True),
                f"nothing from {host.name} arrives",
            )
        return self._harm_network(
            failure,
            [(other, host.number) for other in others],
            Path(is_cut=True),
            f"nothing arrives at {host.name}",
        )

    def _slow_network(self, failure: Failure, host: Host, draw: float) -> bool:
        numbers = [other.number for other in self._job.hosts]
        pairs = [(source, to) for source in numbers for to in numbers if source != to]
        return self._harm_network(failure, pairs, failure.path, "the network is bad")

    def _disk_full(self, failure: Failure, host: Host, draw: float) -> bool:
        self._storage.fill()
        self._note("the disk is full")
        self._ends.wait(failure.for_s)
        if not self.power_is_off:
            self._storage.free()
        self._note("the disk has room again")
        return True

    def _storage_hangs(self, failure: Failure, host: Host, draw: float) -> bool:
        with self._lock:
            if self.power_is_off or self._storage.is_frozen:
                return False
            self._storage.freeze()
        self._note("storage hangs")
        self._ends.wait(failure.for_s)
        self._storage.thaw()
        self._note("storage goes on")
        return True

    def _power_cut(self, failure: Failure, host: Host, draw: float) -> bool:
        """Storage fails first and loses what was not synced; the hosts live a little longer."""
        with self._lock:
            if self.power_is_off or self._storage.is_frozen:
                return False
            self.power_is_off = True
        self._storage.power_off()
        self._note("the storage lost its power")
        self._ends.wait(draw if draw < 0.5 else 0)
        for each in self._hosts:
            each.kill()
        self._note("all hosts died")
        return True


# --- damage at rest ---

SELF_REPAIRED = ("ROOT_ID", "epochs/", "generations/")  # format.md: repaired when read


def flip_a_bit(rng: random.Random, path: str) -> None:
    at = rng.randrange(os.path.getsize(path))
    with open(path, "r+b", buffering=0) as file:
        file.seek(at)
        byte = file.read(1)[0] ^ (1 << rng.randrange(8))
        file.seek(at)
        file.write(bytes([byte]))


def lose_catalogs(hosts: list[Host]) -> None:
    """The runtime folders of all hosts, with the coordinator's catalog, are lost."""
    for host in hosts:
        shutil.rmtree(os.path.join(host.folder, "run"), ignore_errors=True)
