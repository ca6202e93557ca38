"""Each test has a root of its own, and a node that ends with it."""

import os
import pathlib
import sys

import pytest

import shoal


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
