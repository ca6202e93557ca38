"""`shoal export`: the safetensors package and torch read what it writes, bit for bit."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

import shoal

safetensors = pytest.importorskip("safetensors", reason="needs the package safetensors")

from safetensors.numpy import load_file as load_numpy  # noqa: E402


def export(root: pathlib.Path, folder: pathlib.Path, *options: str):
    program = os.path.join(os.path.dirname(shoal.__file__), "bin", "shoal")
    done = subprocess.run(
        [program, "export", str(root), "--to", str(folder), "--json", *options],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def read_all(folder: pathlib.Path, load) -> dict:
    """The tensors as a library finds them: by the index, each file with exactly what the index says."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    tensors: dict = {}
    for name in set(index.values()):
        loaded = load(folder / name)
        assert set(loaded) == {key for key, file in index.items() if file == name}
        tensors |= loaded
    return tensors


def test_numpy_arrays_of_every_kind(checkpointer, root, tmp_path):
    arrays = {
        code: (np.arange(700 * 5) * 37 % 251).astype(code).reshape(700, 5)
        for code in "?bBhHiIlLefd"  # bool, the integers and the floats
    }
    state = {
        "model": {**arrays, "scalar": np.array(7, np.int16), "empty": np.empty((0, 3), np.float32)},
        "optim": {"step": np.arange(3)},
        "lr": 0.1,
    }
    checkpointer.save(1, state).committed()
    report = export(root, tmp_path / "out", "--only", "model", "--rename", "model.=", "--shard-size", "20KB")
    assert report["tensors"] == len(state["model"]) and len(report["files"]) > 3
    loaded = read_all(tmp_path / "out", load_numpy)
    assert set(loaded) == set(state["model"])
    for name, array in state["model"].items():
        assert loaded[name].dtype == array.dtype and loaded[name].shape == array.shape
        assert loaded[name].tobytes() == array.tobytes(), name


def test_torch_tensors_and_conversion(checkpointer, root, tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    state = {
        "w": torch.randn(300, 7),
        "half": torch.randn(5).to(torch.bfloat16),
        "eight": torch.randn(5).to(torch.float8_e4m3fn),
        "ids": torch.arange(11),
        "wide": torch.randn(3, dtype=torch.float64),
    }
    checkpointer.save(1, state).committed()
    export(root, tmp_path / "out", "--format", "safetensors")
    loaded = load_file(tmp_path / "out" / "model.safetensors")
    assert set(loaded) == set(state)
    for name, tensor in state.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name].view(torch.uint8), tensor.view(torch.uint8)), name
    export(root, tmp_path / "bf16", "--dtype", "bf16")
    loaded = read_all(tmp_path / "bf16", load_file)
    assert torch.equal(loaded["w"], state["w"].to(torch.bfloat16))
    assert torch.equal(loaded["half"], state["half"]) and torch.equal(loaded["ids"], state["ids"])
    assert loaded["wide"].dtype == torch.float64


def test_tensors_that_three_ranks_have_saved_in_parts(root, tmp_path, python_environment):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    from dcp_folders import bits, whole_values
    from ranks import run_ranks

    run_ranks("dcp_folders", "save_sharded_here", 3, python_environment, root)
    export(root, tmp_path / "out", "--step", "3")
    loaded = read_all(tmp_path / "out", load_file)
    for name, value in whole_values().items():
        assert loaded[f"model.{name}"].dtype == value.dtype and loaded[f"model.{name}"].shape == value.shape
        assert torch.equal(bits(loaded[f"model.{name}"]), bits(value)), name
