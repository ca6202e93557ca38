"""What wheel_test and pip_test run: two nodes with a rank each, which save and load over UCX.

    package_ranks.py FOLDER            with whatever libraries the package finds
    package_ranks.py FOLDER --bundled  they must be those of the package itself

It starts `shoal launch` twice, as on two hosts. All files are in FOLDER.
"""

from __future__ import annotations

import os
import pathlib
import re
import secrets
import socket
import subprocess
import sys

HOSTS = 2
DEADLINE_S = 90
# Libraries that a rank or a node may have beside its own: of any Linux, and of Python.
SYSTEM_LIBRARIES = re.compile(
    r"/(ld-linux-x86-64|libc|libm|libdl|libresolv|librt|libutil|libpthread|libstdc\+\+|libgcc_s|libz"
    r"|libpython3|libffi|liblzma|libuuid|libexpat)[.\d-]"
)


def main(folder: pathlib.Path, *flags: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    root = folder / "root"
    shoal = os.path.join(os.path.dirname(sys.executable), "shoal")
    environment = dict(os.environ, SHOAL_TOKEN=secrets.token_hex(32))
    command = [shoal, "launch", "--root", str(root), "--create", "--nnodes", str(HOSTS)]
    command += ["--coordinator", f"127.0.0.1:{port}", "--job-id", secrets.token_hex(8), "--transport", "ucx"]
    launches = [
        subprocess.Popen(
            [*command, "--node-rank", str(host), "--", sys.executable, __file__, "rank", *flags],
            env=dict(environment, SHOAL_RUNTIME_DIR=str(folder / f"host-{host}")),
        )
        for host in range(HOSTS)
    ]
    try:
        statuses = [launch.wait(DEADLINE_S) for launch in launches]
    finally:
        for launch in launches:
            launch.terminate()
    assert statuses == [0] * HOSTS, f"shoal launch ended with {statuses}"
    subprocess.run([shoal, "verify", str(root)], check=True)
    # The command finds its profiles and scenarios, too.
    for what in (["--ranks", "8", "--profile", "nvme"], ["--scenario", "gpt2-16"]):
        subprocess.run([shoal, "sim", *what], check=True, stdout=subprocess.DEVNULL)


def rank_main(*flags: str) -> None:
    import numpy as np
    import shoal

    rank = int(os.environ["RANK"])
    shared = np.random.default_rng(7).standard_normal((1000, 321))
    own = np.arange(1_000_000, dtype=np.int32) * (rank + 1)
    with shoal.Checkpointer() as ck:
        ck.save(3, {"shared": shared, "own": shoal.per_rank({"values": own}), "epoch": 5}).committed()
        state = {
            "shared": np.zeros_like(shared),
            "own": shoal.per_rank({"values": np.zeros_like(own)}),
            "epoch": 0,
        }
        ck.load("latest", into=state)
        assert np.array_equal(state["shared"], shared)
        assert np.array_equal(state["own"].value["values"], own)
        assert state["epoch"] == 5
        if "--bundled" in flags:
            check_libraries()
    print(f"rank {rank}: what was loaded equals what was saved", flush=True)


def check_libraries() -> None:
    """Of this rank and of the nodes, which run now."""
    installed = os.path.join(os.path.realpath(sys.prefix), "lib", "")
    nodes = 0
    for process in ["self", *(name for name in os.listdir("/proc") if name.isdigit())]:
        try:
            is_node = os.path.realpath(f"/proc/{process}/exe").startswith(installed)
            maps = pathlib.Path(f"/proc/{process}/maps").read_text()
        except OSError:  # it has ended
            continue
        if not is_node and process != "self":
            continue
        files = {line.split(maxsplit=5)[5] for line in maps.splitlines() if ".so" in line}
        others = {file for file in files if not file.startswith(installed) and "/lib-dynload/" not in file}
        foreign = {file for file in others if not SYSTEM_LIBRARIES.search(file)}
        assert not foreign, f"process {process} uses {sorted(foreign)}"
        if is_node and any("/shoal.libs/libucp-" in file for file in files):
            # UCX opens its modules by name: libuct_cma needs nothing that a host may lack.
            nodes += any("/shoal.libs/ucx/libuct_cma." in file for file in files)
    assert nodes == HOSTS, f"{nodes} nodes have opened UCX's module in the wheel"
    print("the rank and the nodes use the libraries of the wheel", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        rank_main(*sys.argv[2:])
    else:
        main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
