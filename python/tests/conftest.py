"""Each test has a root of its own, and a node that ends with it."""

import os
import pathlib
import subprocess
import sys

import pytest

import shoal

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "root"


@pytest.fixture
def checkpointer(root: pathlib.Path):
    root.mkdir()
    with shoal.Checkpointer(root) as opened:
        yield opened


@pytest.fixture
def python_environment() -> dict[str, str]:
    """The environment of a child process that imports the same shoal."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(shoal.__file__)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_ROOT")}
    environment["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment["PYTHONUNBUFFERED"] = "1"
    environment["PYTHON"] = sys.executable
    return environment


@pytest.fixture
def run_example(python_environment):
    """Runs a program of examples/ under torchrun. Returns its result, and the lines of its losses."""

    def run(example: str, ranks: int, *arguments):
        program = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        ran = subprocess.run(
            [*program, EXAMPLES / example, *arguments],
            env={**python_environment, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=240,
        )
        return ran, [line for line in ran.stdout.splitlines() if line.startswith("step ")]

    return run
