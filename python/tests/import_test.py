"""`shoal import`: the folders of DCP that torch has written, imported by the program, bit for bit."""

import json
import os
import pathlib
import pickle
import subprocess

import pytest

import shoal

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402

from dcp_folder_test import hostile, metadata_of, write_metadata  # noqa: E402
from dcp_folders import every_kind_of_value, filled, same_tensors, whole_values  # noqa: E402
from ranks import run_ranks  # noqa: E402

PROGRAM = os.path.join(os.path.dirname(shoal.__file__), "bin", "shoal")


def run_import(folder, root, *options, **arguments):
    command = [PROGRAM, "import", str(folder), str(root), "--create", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **arguments)


def imported(folder, root, *options, **arguments):
    done = run_import(folder, root, "--json", *options, **arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def loaded(root, step):
    with shoal.Checkpointer(root, read_only=True) as ck:
        return ck.load(step)


def rejected(folder, root, *says, status):
    done = run_import(folder, root, "--step", "1")
    assert done.returncode == status, done.stderr
    for each in says:
        assert each in done.stderr, done.stderr
    assert not list(root.glob("step-*/*/manifest*")), "nothing is committed"


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "old" / "step-5"


def dcp_save(state, folder):
    dcp.save(state, checkpoint_id=folder, no_dist=True)


def test_every_kind_of_value_is_loaded_bit_for_bit(folder, root):
    state = every_kind_of_value()
    dcp_save(state, folder)
    report = imported(folder, root)
    assert report["step"] == 5, "the number in the folder's name"
    assert report["tensors"] == len(state["tensors"]) + 1
    found = loaded(root, 5)
    same_tensors(found["tensors"], state["tensors"])
    assert found["plain"] == state["plain"] and found["odd"] == state["odd"]
    assert found["nested"]["list"][1] == {"b": 2}
    assert torch.equal(found["nested"]["list"][0]["a"], torch.arange(3))
    assert subprocess.run([PROGRAM, "verify", root, "--all"], capture_output=True).returncode == 0


def test_objects_are_the_values_that_they_were(folder, root):
    values = {
        "int": 7,
        "negative": -(2**40),
        "large": 2**127,
        "float": [0.1, 1.0, 1e300, 5e-324, -0.0, float("inf")],
        "text": 'a"\n\u1234\U0001f41f',
        "bytes": bytes(range(256)),
        "bytearray": bytearray(b"\x80x"),
        "empty": (b"", "", [], ()),
        "dicts": ({"lr": 0.1, "betas": (0.9, 0.99), 3: [True, None]}, {}),
        "torch": (torch.float8_e4m3fn, torch.Size([2, 3]), torch.device("cuda", 1), 1 + 2j),
        "set": {1, 2},
    }
    dcp_save({"v": values}, folder)
    imported(folder, root)
    found = loaded(root, 5)["v"]
    assert found == values
    assert [type(each) for each in found["empty"]] == [bytes, str, list, tuple]
    assert str(found["float"]) == str(values["float"])


def test_both_imports_store_the_same_objects(folder, root, tmp_path):
    import shoal.torch

    values = {"a": (1, 2.5, "ü", b"\xff"), "b": ({"x": [1e-5, 1e22]},), "c": {"d": {1}}, "e": 2**70}
    dcp_save(values, folder)
    imported(folder, root)
    shoal.torch.import_dcp(folder, tmp_path / "other", 5)
    shoal.torch._by_root.pop(str(tmp_path / "other")).close()
    contents = []
    for each in (root, tmp_path / "other"):
        with shoal.Checkpointer(each, read_only=True) as ck, ck.open(5) as checkpoint:
            contents.append({name: checkpoint._reader.read(name) for name in checkpoint.keys()})
    assert contents[0] == contents[1]


def test_sharded_states_of_several_ranks(folder, root, python_environment):
    folder.parent.mkdir()
    run_ranks("dcp_folders", "save_sharded", 4, python_environment, folder)
    imported(folder, root, "--step", "3")
    same_tensors(loaded(root, 3)["model"], whole_values())
    run_ranks("dcp_folders", "load_imported", 2, python_environment, root)


def test_optimizer_of_an_fsdp_model(folder, root, python_environment):
    folder.parent.mkdir()
    run_ranks("fsdp_models", "save_for_import", 2, python_environment, folder)
    imported(folder, root)
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    whole = folder.parent / "whole.pt"
    dcp_to_torch_save(folder, whole)
    expected, found = torch.load(whole), loaded(root, 5)
    assert expected["optim"]["state"], "the optimizer has taken a step"

    def same(a, b):
        assert type(a) is type(b)
        if isinstance(a, dict):
            assert set(a) == set(b)
            for key in a:
                same(a[key], b[key])
        elif isinstance(a, list):
            assert len(a) == len(b)
            for pair in zip(a, b):
                same(*pair)
        elif isinstance(a, torch.Tensor):
            same_tensors({"": a}, {"": b})
        else:
            assert a == b

    same(expected, found)


def test_a_folder_larger_than_the_memory_is_staged_in_parts(folder, root):
    big = torch.arange(96 << 18, dtype=torch.int64).view(-1, 1024)  # 192 MiB
    turned = filled(torch.int16, 2048, 2048).t()
    dcp_save({"big": big, "turned": turned}, folder)
    imported(folder, root, "--memory", "64MiB")
    found = loaded(root, 5)
    assert torch.equal(found["big"], big) and torch.equal(found["turned"], turned)


def test_hostile_folders_are_rejected_by_name(folder, root, tmp_path):
    dcp_save({"a": torch.ones(3)}, folder)
    metadata = metadata_of(folder)
    metadata.planner_data["a"] = hostile(tmp_path)
    write_metadata(folder, metadata)
    rejected(folder, root, ".metadata names posix.system", status=2)
    dcp_save({"key": hostile(tmp_path), "b": 7}, folder)
    rejected(folder, root, "'key' in", "__0_0.distcp", "names posix.system", "--allow-pickle", status=2)
    imported(folder, root, "--step", "1", "--allow-pickle")
    with shoal.Checkpointer(root, read_only=True) as ck, ck.open(1) as checkpoint:
        assert checkpoint["b"] == 7
        with pytest.raises(Exception, match="system"):
            checkpoint["key"]
    assert not (tmp_path / "witness").exists()


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", "", "a\nb"])
def test_a_file_outside_of_the_folder_is_rejected(name, folder, root):
    dcp_save({"a": torch.ones(3)}, folder)
    metadata = metadata_of(folder)
    next(iter(metadata.storage_data.values())).relative_path = name
    write_metadata(folder, metadata)
    rejected(folder, root, "not a file of this folder", status=2)


def test_damaged_and_incomplete_folders_are_named(folder, root):
    rejected(folder, root, "step-5 does not exist", status=2)
    dcp_save({"a": torch.arange(1000.0), "b": torch.ones(10)}, folder)
    file = folder / "__0_0.distcp"
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    rejected(folder, root, "__0_0.distcp is truncated", status=1)
    flipped = bytearray(data)
    flipped[data.index(torch.arange(1000.0).numpy().tobytes()) + 500] ^= 1
    file.write_bytes(flipped)
    rejected(folder, root, "'a' at [0]", "CRC-32", status=1)
    file.unlink()
    rejected(folder, root, "__0_0.distcp does not exist", status=2)
    file.write_bytes(data)
    content = (folder / ".metadata").read_bytes()
    for size in (0, 1, 40, len(content) // 2, len(content) - 1):
        (folder / ".metadata").write_bytes(content[:size])
        rejected(folder, root, ".metadata cannot be unpickled", status=1)
    (folder / ".metadata").unlink()
    rejected(folder, root, "the save that wrote this folder did not finish", status=2)


def test_metadata_that_contradicts_itself_is_rejected(folder, root):
    dcp_save({"a": torch.ones(3, 2), "n": 1}, folder)
    content = (folder / ".metadata").read_bytes()

    def changed(change, *says):
        metadata = pickle.loads(content)
        change(metadata)
        write_metadata(folder, metadata)
        done = run_import(folder, root, "--step", "1")
        assert done.returncode in (1, 2), done.stderr
        for each in says:
            assert each in done.stderr, done.stderr

    def about(metadata):
        return metadata.state_dict_metadata["a"]

    changed(lambda it: about(it).chunks.clear(), "'a' has no chunks")
    changed(lambda it: about(it).chunks.append(about(it).chunks[0]), "the chunks of 'a'", "overlap")
    changed(lambda it: setattr(about(it), "size", torch.Size([2, 2])), "'a' has a chunk that does not fit")
    changed(lambda it: setattr(about(it), "size", torch.Size([4, 2])), "the chunks of 'a'")
    changed(lambda it: setattr(about(it), "size", "x"), "neither a tensor nor an object")
    changed(lambda it: setattr(about(it).properties, "dtype", torch.int32), "the metadata says")
    changed(lambda it: setattr(about(it).properties, "dtype", torch.complex128), "torch.complex128")
    changed(lambda it: it.storage_data.clear(), "does not say where")
    changed(lambda it: it.planner_data.update(a=("n", "a")), "the path of 'a'")
    changed(lambda it: setattr(it, "state_dict_metadata", None), "is not the metadata")
    changed(lambda it: [setattr(i, "length", -1) for i in it.storage_data.values()], "the place of")
    changed(
        lambda it: [setattr(i, "transform_descriptors", ["zstd"]) for i in it.storage_data.values()],
        "extensions",
    )


def test_arguments_that_cannot_be_right(tmp_path, root):
    dcp_save({"a": 1}, tmp_path / "last")
    done = run_import(tmp_path / "last", root)
    assert done.returncode == 2 and "pass --step N" in done.stderr
    done = run_import(tmp_path / "last", root, "--step", "1", "--memory", "1k")
    assert done.returncode == 2 and "64MiB" in done.stderr
