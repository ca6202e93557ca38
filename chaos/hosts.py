"""Hosts on this machine: each is a network, mount, host-name and process namespace with its own address.

They share every folder but /dev/shm, as a cluster shares a file system. Needs root, iproute2 and util-linux.
"""

import os
import signal
import subprocess
import sys
import time

from network import Switch

# The first process of a host: it collects the processes whose parents have ended. When it is killed, the
# kernel kills every process of the host.
FIRST_PROCESS = """
import os, time
while True:
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        time.sleep(0.02)
"""


class CannotRun(Exception):
    """This machine does not permit what a host needs."""


def call(*command: str) -> str:
    """Runs a command to its end and returns what it printed. Raises CannotRun with its last line."""
    try:
        end = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise CannotRun(f"{command[0]} is not installed") from error
    if end.returncode != 0:
        lines = (end.stderr or end.stdout).strip().splitlines() or [f"status {end.returncode}"]
        raise CannotRun(f"{' '.join(command)}: {lines[-1]}")
    return end.stdout


class Host:
    """One host. `number` counts from 0; `address` is its IPv4 address."""

    def __init__(self, number: int, folder: str, switch: Switch):
        self.number = number
        self.name = f"h{number}"
        self.address = f"10.79.0.{number + 1}"
        self.folder = os.path.join(folder, self.name)
        os.makedirs(self.folder, exist_ok=True)
        self._switch = switch
        self._holder: subprocess.Popen | None = None
        self.start()

    def start(self) -> None:
        """Starts the host, or starts it again after kill()."""
        script = (
            "mount -t tmpfs -o size=512m none /dev/shm && mount -t sysfs none /sys && "
            f"hostname {self.name} && exec {sys.executable} -I -c '{FIRST_PROCESS}'"
        )
        with open(os.path.join(self.folder, "host.log"), "ab") as log:
            self._holder = subprocess.Popen(
                [
                    "unshare",
                    "--net",
                    "--mount",
                    "--uts",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "--mount-proc",
                    "--",
                    "sh",
                    "-c",
                    script,
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self._first = self._find_first()
        space = ["nsenter", "-t", str(self._first), "-n"]
        try:
            self._switch.attach(self.number, self._first)
        except OSError as error:
            raise CannotRun(f"/dev/net/tun: {error}") from error
        call(
            *space, "ip", "link", "set", "eth0", "address", f"02:00:00:00:00:{self.number:02x}", "mtu", "9000"
        )
        call(*space, "ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        call(*space, "ip", "link", "set", "lo", "up")
        call(*space, "ip", "link", "set", "eth0", "up")

    def _find_first(self) -> int:
        """The pid, outside, of the process that has pid 1 inside."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if self._holder.poll() is not None:
                raise CannotRun("unshare ended: namespaces are not permitted here")
            children = f"/proc/{self._holder.pid}/task/{self._holder.pid}/children"
            with open(children) as file:
                pids = file.read().split()
            if pids and "-I" in command_line(int(pids[0])):
                return int(pids[0])
            time.sleep(0.01)
        raise CannotRun(f"host {self.name} did not start within 10 s: see {self.folder}/host.log")

    @property
    def is_up(self) -> bool:
        return self._holder is not None and self._holder.poll() is None

    def run(self, command: list[str], environment: dict[str, str], out, err) -> subprocess.Popen:
        """Starts a command on this host, with no other environment than this."""
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C", "HOME": self.folder, **environment}
        return subprocess.Popen(
            [
                "nsenter",
                "-t",
                str(self._first),
                "-n",
                "-m",
                "-u",
                "-p",
                "--",
                "env",
                "-i",
                *(f"{name}={value}" for name, value in variables.items()),
                *command,
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )

    def processes(self) -> dict[int, list[str]]:
        """The pids, outside, and command lines of all processes of this host but the first."""
        if not self.is_up:
            return {}
        space = os.readlink(f"/proc/{self._first}/ns/pid")
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == self._first:
                continue
            try:
                if os.readlink(f"/proc/{name}/ns/pid") == space:
                    found[int(name)] = command_line(int(name))
            except OSError:
                pass
        return {pid: line for pid, line in found.items() if line}

    def kill(self) -> None:
        """The host dies: all its processes at once, with its memory."""
        if self._holder is None:
            return
        kill(self._first, signal.SIGKILL)
        self._holder.wait()
        self._holder = None
        self._switch.detach(self.number)


def command_line(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [part.decode(errors="replace") for part in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def kill(pid: int, number: int) -> bool:
    """False: the process has ended before."""
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False
