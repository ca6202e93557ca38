"""`shoal export` and export_safetensors: safetensors and torch read what they write, bit for bit."""

import json
import os
import pathlib
import signal
import subprocess
import time

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


def test_from_python(checkpointer, tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    state = {"model": {"a": torch.randn(300, 7), "b": torch.arange(9)}, "optim": {"m": torch.ones(2)}, "n": 1}
    checkpointer.save(1, state).committed()
    checkpointer.save(2, {"model": {}}).committed()
    out = tmp_path / "out"
    options = {"only": "model", "rename": {"model.": "net."}, "dtype": torch.bfloat16, "shard_size": 4000}
    done = checkpointer.export_safetensors(1, out, **options)
    assert (done.step, done.tensors) == (1, 2) and done.bytes == 300 * 7 * 2 + 9 * 8
    names = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
    assert {os.path.basename(path) for path in done.files} == names
    assert set(os.listdir(out)) == names | {"model.safetensors.index.json"}
    loaded = read_all(out, load_file)
    assert set(loaded) == {"net.a", "net.b"} and torch.equal(loaded["net.b"], state["model"]["b"])
    assert torch.equal(loaded["net.a"], state["model"]["a"].to(torch.bfloat16))
    with pytest.raises(shoal.AlreadyExists, match="model-00001.* replace it with force=True"):
        checkpointer.export_safetensors(1, out, **options)
    options = {"format": "safetensors", "only": ["model.b", "optim"]}
    done = checkpointer.export_safetensors(1, out, **options, force=True)
    assert done.files == [str(out / "model.safetensors")] and os.listdir(out) == ["model.safetensors"]
    assert set(load_file(out / "model.safetensors")) == {"model.b", "optim.m"}


def test_from_python_with_wrong_arguments(checkpointer, tmp_path):
    checkpointer.save(1, {"x": np.zeros(3), "c": np.zeros(2, np.complex64)}).committed()
    file = tmp_path / "file"
    file.write_text("")
    for options, says in (
        ({"only": 3}, "only is 3"),
        ({"rename": {"": "x"}}, "rename has the key ''"),
        ({"rename": "x=y"}, "rename is 'x=y'"),
        ({"rename": {"x": "c"}}, "'c'"),
        ({"dtype": "int32"}, "dtype is 'int32'"),
        ({"dtype": np.float64}, "dtype is .*float64"),
        ({"shard_size": 1.5}, "shard_size is 1.5"),
        ({"shard_size": "much"}, "'much' is not a size"),
        ({"shard_size": -1}, "'-1' is not a size"),
        ({"format": "gguf"}, "format is 'gguf'"),
    ):
        with pytest.raises(shoal.InvalidArgument, match=says):
            checkpointer.export_safetensors(1, tmp_path / "out", **options)
    with pytest.raises(shoal.NotFound, match="step 2"):
        checkpointer.export_safetensors(2, tmp_path / "out")
    with pytest.raises(shoal.NotFound, match="no tensor 'nothing'"):
        checkpointer.export_safetensors(1, tmp_path / "out", only="nothing")
    with pytest.raises(shoal.IoError, match="file"):
        checkpointer.export_safetensors(1, file)
    assert not (tmp_path / "out").exists() or not os.listdir(tmp_path / "out")


def test_a_checkpoint_is_not_deleted_while_it_is_exported(root, tmp_path, monkeypatch):
    root.mkdir()
    with shoal.Checkpointer(root, node={"keep_last": 1}) as ck:
        ck.save(1, {"x": np.arange(1000)}).committed()
        run = subprocess.run

        def saves_before(command, **options):
            for step in range(2, 6):
                ck.save(step, {"x": np.arange(3) + step}).committed()
            return run(command, **options)

        monkeypatch.setattr(subprocess, "run", saves_before)
        done = ck.export_safetensors("latest", tmp_path / "out", format="safetensors")
    assert done.step == 1 and load_numpy(done.files[0])["x"].tolist() == list(range(1000))


def test_the_program_pins_what_it_exports(root, tmp_path):
    root.mkdir()
    program = os.path.join(os.path.dirname(shoal.__file__), "bin", "shoal")
    with shoal.Checkpointer(root, node={"keep_last": 1}) as ck:
        ck.save(1, {"x": np.arange(16 << 20)}).committed()  # 128 MiB
        command = [program, "export", str(root), "--step", "1", "--to", str(tmp_path / "out"), "--json"]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while running.poll() is None and not any(len(path.name) == 32 for path in root.glob("pins/*")):
            assert time.monotonic() < deadline
        running.send_signal(signal.SIGSTOP)
        try:
            for step in range(2, 6):
                ck.save(step, {"x": np.arange(3) + step}).committed()
            assert 1 in [each.step for each in ck.list() if each.state == "committed"]
        finally:
            running.send_signal(signal.SIGCONT)
        _, errors = running.communicate(timeout=60)
        assert running.returncode == 0 and errors == b""
        assert not list(root.glob("pins/*"))


def test_a_damaged_checkpoint_is_named(checkpointer, root, tmp_path):
    checkpointer.save(1, {"x": np.arange(1000)}).committed()
    (shard,) = root.glob("step-*/*/rank-*.safetensors")
    data = bytearray(shard.read_bytes())
    data[data.index(np.arange(1000).tobytes()) + 4000] ^= 1
    os.chmod(shard, 0o600)
    shard.write_bytes(data)
    with pytest.raises(shoal.Corrupt, match=r"rank-00000\.safetensors"):
        checkpointer.export_safetensors(1, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []
