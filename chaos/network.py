"""The network between the hosts: a switch in this process, which can lose, delay, double and reorder frames.

Each host has a TAP device, whose other end the switch reads. So no module of the kernel for such failures is
needed, and each direction between two hosts can be treated by itself.
"""

import ctypes
import dataclasses
import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time

TUNSETIFF = 0x400454CA
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000
CLONE_NEWNET = 0x40000000
MAX_FRAME = 9100

_libc = ctypes.CDLL(None, use_errno=True)


@dataclasses.dataclass
class Path:
    """What happens to the frames from one host to another. Probabilities are of each frame."""

    is_cut: bool = False
    loss: float = 0
    doubled: float = 0
    delay_s: float = 0
    jitter_s: float = 0  # uniform, added to delay_s; reorders frames


def open_tap(pid: int) -> int:
    """The TAP device eth0 in the network namespace of this process, made there. Returns its descriptor."""
    result: list[int | OSError] = []

    def enter_and_open() -> None:  # in a thread of its own, since a thread that has entered a namespace stays
        try:
            with open(f"/proc/{pid}/ns/net") as space:
                if _libc.setns(space.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TAP | IFF_NO_PI))
            result.append(tap)
        except OSError as error:
            result.append(error)

    thread = threading.Thread(target=enter_and_open)
    thread.start()
    thread.join()
    if isinstance(result[0], OSError):
        raise result[0]
    return result[0]


class Switch:
    """Passes frames between hosts in a thread of its own. All methods may be called from any thread."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._taps: dict[int, int] = {}
        self._paths: dict[tuple[int, int], Path] = {}
        self._late: list[tuple[float, int, int, bytes]] = []  # due, number, to, frame: a heap
        self._frames = 0
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._ends = False
        self._thread = threading.Thread(target=self._pass_frames, name="switch", daemon=True)
        self._thread.start()

    def attach(self, host: int, pid: int) -> None:
        tap = open_tap(pid)
        with self._lock:
            self._taps[host] = tap
        os.write(self._wake_write, b"x")

    def detach(self, host: int) -> None:
        with self._lock:
            tap = self._taps.pop(host, None)
        if tap is not None:
            os.close(tap)
        os.write(self._wake_write, b"x")

    def set_path(self, source: int, to: int, path: Path | None) -> None:
        """None: frames pass unharmed, as at the start."""
        with self._lock:
            if path is None:
                self._paths.pop((source, to), None)
            else:
                self._paths[source, to] = path

    def heal(self) -> None:
        with self._lock:
            self._paths.clear()

    def close(self) -> None:
        self._ends = True
        os.write(self._wake_write, b"x")
        self._thread.join()
        for host in list(self._taps):
            self.detach(host)

    def _pass_frames(self) -> None:
        while not self._ends:
            with self._lock:
                taps = {tap: host for host, tap in self._taps.items()}
            timeout = max(0.0, self._late[0][0] - time.monotonic()) if self._late else 1.0
            try:
                ready, _, _ = select.select([*taps, self._wake_read], [], [], timeout)
            except OSError:  # a host was detached meanwhile
                continue
            if self._wake_read in ready:
                try:
                    os.read(self._wake_read, 4096)
                except BlockingIOError:
                    pass
            for tap in ready:
                if tap in taps:
                    self._receive(taps[tap], tap)
            now = time.monotonic()
            while self._late and self._late[0][0] <= now:
                _, _, to, frame = heapq.heappop(self._late)
                self._send(to, frame)

    def _receive(self, source: int, tap: int) -> None:
        for _ in range(64):
            try:
                frame = os.read(tap, MAX_FRAME)
            except OSError:  # nothing more, or the host is gone
                return
            if len(frame) < 14:
                return
            if frame[0] & 1:  # to all hosts
                for to in list(self._taps):
                    if to != source:
                        self._offer(source, to, frame)
            else:
                self._offer(source, frame[5], frame)

    def _offer(self, source: int, to: int, frame: bytes) -> None:
        path = self._paths.get((source, to))
        if path is None:
            return self._send(to, frame)
        if path.is_cut or self._random.random() < path.loss:
            return None
        copies = 2 if self._random.random() < path.doubled else 1
        for _ in range(copies):
            delay = path.delay_s + self._random.random() * path.jitter_s
            if delay == 0:
                self._send(to, frame)
            else:
                self._frames += 1
                heapq.heappush(self._late, (time.monotonic() + delay, self._frames, to, frame))
        return None

    def _send(self, to: int, frame: bytes) -> None:
        with self._lock:
            tap = self._taps.get(to)
        if tap is None:
            return
        try:
            os.write(tap, frame)
        except OSError:  # its queue is full, or the host is gone: the frame is lost, as in a real network
            pass
