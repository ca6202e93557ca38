"""Folders of torch.distributed.checkpoint: import_dcp and export_dcp."""

import errno
import os
import pathlib
import pickle
import time

import pytest

import shoal

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402

import shoal.torch  # noqa: E402
from dcp_folders import bits, every_kind_of_value, same_tensors  # noqa: E402
from ranks import run_ranks  # noqa: E402


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "dcp"


@pytest.fixture
def root(tmp_path: pathlib.Path):
    path = tmp_path / "root"
    yield path
    opened = shoal.torch._by_root.pop(str(path), None)
    if opened is not None:
        opened.close()


def dcp_save(state, folder):
    dcp.save(state, checkpoint_id=folder, no_dist=True)


def metadata_of(folder):
    return pickle.loads((folder / ".metadata").read_bytes())


def write_metadata(folder, metadata):
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


# ---- import ----


def test_import_keeps_every_kind_of_value(folder, root):
    state = every_kind_of_value()
    dcp_save(state, folder)
    assert shoal.torch.import_dcp(folder, root, 5).step == 5
    loaded = shoal.torch.checkpointer(root).load(5)
    same_tensors(loaded["tensors"], state["tensors"])
    assert loaded["plain"] == state["plain"]
    assert loaded["nested"]["list"][1]["b"] == 2
    assert torch.equal(loaded["nested"]["list"][0]["a"], state["nested"]["list"][0]["a"])
    assert loaded["odd"] == state["odd"]


def test_import_can_be_loaded_in_place_and_by_dcp(folder, root):
    state = every_kind_of_value()
    dcp_save(state, folder)
    shoal.torch.import_dcp(folder, root, 5)
    into = {"tensors": {name: torch.zeros_like(value) for name, value in state["tensors"].items()}}
    shoal.torch.load(into, checkpoint_id=root / "step-5")
    same_tensors(into["tensors"], state["tensors"])
    into = {"tensors": {name: torch.zeros_like(value) for name, value in state["tensors"].items()}}
    dcp.load(into, storage_reader=shoal.torch.StorageReader(root / "step-5"), no_dist=True)
    same_tensors(into["tensors"], state["tensors"])


@pytest.mark.parametrize("savers, importers", [(4, 1), (2, 3)])
def test_import_of_sharded_states(savers, importers, folder, root, python_environment):
    run_ranks("dcp_folders", "save_sharded", savers, python_environment, folder)
    run_ranks("dcp_folders", "import_on_each", importers, python_environment, folder, root)
    files = list(root.glob("step-*/*/rank-*.safetensors"))
    assert len(files) >= importers, "every rank writes a part"
    run_ranks("dcp_folders", "load_imported", 2, python_environment, root)


def test_import_stages_in_parts_within_its_memory(folder, root):
    big = torch.arange(48 << 20, dtype=torch.int32)  # 192 MiB
    turned = torch.arange(4 << 20, dtype=torch.int16).view(1 << 11, 1 << 11).t()
    dcp_save({"big": big, "turned": turned}, folder)
    shoal.torch.checkpointer(root, staging_bytes_max=64 << 20)
    shoal.torch.import_dcp(folder, root, 1)
    shoal.torch._by_root.pop(str(root)).close()
    with shoal.torch.checkpointer(root).open(1) as checkpoint:
        assert torch.equal(checkpoint["big"], big)
        assert torch.equal(checkpoint["turned"], turned)


class Hostile:
    def __reduce__(self):
        return os.system, ("echo hostile > " + self.witness,)


def hostile(tmp_path):
    made = Hostile()
    made.witness = str(tmp_path / "witness")
    return made


def rejected(error, match, folder, root, **options):
    with pytest.raises(error, match=match):
        shoal.torch.import_dcp(folder, root, 1, **options)
    assert not list(root.glob("step-*/*/manifest*")), "nothing is committed"


def test_hostile_metadata_is_rejected_by_name(folder, root, tmp_path):
    dcp_save({"a": torch.ones(3)}, folder)
    metadata = metadata_of(folder)
    metadata.planner_data["a"] = hostile(tmp_path)
    write_metadata(folder, metadata)
    rejected(shoal.InvalidArgument, r"\.metadata names posix\.system", folder, root)
    assert not (tmp_path / "witness").exists()


def test_hostile_tensor_is_rejected_by_name(folder, root, tmp_path):
    dcp_save({"a": torch.ones(3)}, folder)
    (folder / "__0_0.distcp").unlink()
    torch.save(hostile(tmp_path), folder / "__0_0.distcp")
    metadata = metadata_of(folder)
    (info,) = metadata.storage_data.values()
    info.offset, info.length = 0, os.path.getsize(folder / "__0_0.distcp")
    write_metadata(folder, metadata)
    rejected(shoal.InvalidArgument, r"'a' at \[0\] in .*__0_0.distcp.*names posix\.system", folder, root)
    assert not (tmp_path / "witness").exists()


def test_hostile_object_is_rejected_by_name(folder, root, tmp_path):
    dcp_save({"a": hostile(tmp_path), "b": 7}, folder)
    rejected(shoal.InvalidArgument, r"'a' in .*__0_0.distcp.*system", folder, root)
    shoal.torch.import_dcp(folder, root, 1, allow_pickle=True)
    with shoal.torch.checkpointer(root).open(1) as checkpoint:
        assert checkpoint["b"] == 7
        with pytest.raises(Exception, match="system"):
            checkpoint["a"]
    assert not (tmp_path / "witness").exists()


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", ""])
def test_a_file_outside_of_the_folder_is_rejected(name, folder, root):
    dcp_save({"a": torch.ones(3)}, folder)
    metadata = metadata_of(folder)
    next(iter(metadata.storage_data.values())).relative_path = name
    write_metadata(folder, metadata)
    rejected(shoal.InvalidArgument, "not a file of this folder", folder, root)


def test_missing_and_truncated_files_are_named(folder, root):
    rejected(shoal.NotFound, "dcp does not exist", folder, root)
    dcp_save({"a": torch.ones(3), "b": torch.ones(1000)}, folder)
    data, file = (folder / "__0_0.distcp").read_bytes(), folder / "__0_0.distcp"
    file.write_bytes(data[:-1])
    rejected(shoal.Corrupt, r"__0_0\.distcp is truncated: .* bytes, and '[ab]' ends at", folder, root)
    file.unlink()
    rejected(shoal.NotFound, r"__0_0\.distcp does not exist; .*\.metadata places", folder, root)
    file.write_bytes(bytes(len(data)))
    rejected(shoal.Corrupt, r"'[ab]' at \[0\] in .*__0_0\.distcp.*not what torch\.save writes", folder, root)
    file.write_bytes(data)
    content = (folder / ".metadata").read_bytes()
    for size in (0, 1, 40, len(content) // 2, len(content) - 1):
        (folder / ".metadata").write_bytes(content[:size])
        rejected(shoal.Corrupt, r"\.metadata cannot be unpickled", folder, root)
    (folder / ".metadata").unlink()
    rejected(shoal.NotFound, r"\.metadata does not exist: the save .* did not finish", folder, root)
    (folder / ".metadata").write_bytes(content)
    shoal.torch.import_dcp(folder, root, 1)


def test_metadata_that_contradicts_itself_is_rejected(folder, root):
    dcp_save({"a": torch.ones(3, 2), "n": 1}, folder)

    def changed(change, match):
        metadata = metadata_of(folder)
        content = (folder / ".metadata").read_bytes()
        change(metadata)
        write_metadata(folder, metadata)
        rejected((shoal.Corrupt, shoal.InvalidArgument), match, folder, root)
        (folder / ".metadata").write_bytes(content)

    def about(metadata):
        return metadata.state_dict_metadata["a"]

    changed(lambda it: about(it).chunks.clear(), "'a' has 6 elements, but its chunks have 0")
    changed(lambda it: about(it).chunks.append(about(it).chunks[0]), "have 12")
    changed(lambda it: setattr(about(it), "size", torch.Size([2, 2])), "but a chunk")
    changed(lambda it: setattr(about(it), "size", "x"), "neither a tensor nor an object")
    changed(lambda it: setattr(about(it).properties, "dtype", torch.int32), "the metadata says")
    changed(lambda it: setattr(about(it).properties, "dtype", torch.complex128), "complex128")
    changed(lambda it: it.storage_data.clear(), "does not say where")
    changed(lambda it: it.planner_data.update(a=("n", "a")), "a path must be the name")
    changed(lambda it: setattr(it, "state_dict_metadata", None), "is not the metadata")
    changed(lambda it: [setattr(i, "length", -1) for i in it.storage_data.values()], "the place of")
    changed(
        lambda it: [setattr(i, "transform_descriptors", ["zstd"]) for i in it.storage_data.values()], "zstd"
    )


# ---- export ----


def save_and_export(state, root, folder):
    shoal.torch.save(state, checkpoint_id=root / "step-1")
    shoal.torch.export_dcp(root, 1, folder)


def loaded_by_dcp(like, folder):
    """What dcp.load makes of a state with the same tensors, zeroed, and other plain values."""

    def emptied(value):
        if isinstance(value, torch.Tensor):
            return torch.zeros_like(value)
        if isinstance(value, dict):
            return {key: emptied(each) for key, each in value.items()}
        if isinstance(value, list):
            return [emptied(each) for each in value]
        return None

    state = emptied(like)
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    return state


def test_export_is_read_by_dcp_bit_for_bit(folder, root):
    state = every_kind_of_value()
    del state["odd"]
    state["nested"] |= {
        "lists": [[1, 2], [3]],
        "tuple": (torch.arange(4), "x"),
        "tuples": [(torch.arange(2), 1)],
        "tied": state["tensors"]["float32"],
        "deep": {"list": [torch.ones(2), [torch.zeros(1)]]},
    }
    save_and_export(state, root, folder)
    loaded = loaded_by_dcp(state, folder)
    same_tensors(loaded["tensors"], state["tensors"])
    assert loaded["plain"] == state["plain"]
    nested, expected = loaded["nested"], state["nested"]
    assert nested["lists"] == [[1, 2], [3]] and nested["list"][1] == {"b": 2}
    assert torch.equal(nested["list"][0]["a"], expected["list"][0]["a"])
    assert torch.equal(nested["tuple"][0], torch.arange(4)) and nested["tuple"][1] == "x"
    assert type(nested["tuples"][0]) is tuple and torch.equal(nested["tuples"][0][0], torch.arange(2))
    assert torch.equal(nested["tied"], expected["tied"])
    assert torch.equal(nested["deep"]["list"][1][0], torch.zeros(1))
    assert sorted(os.listdir(folder)) == [".metadata", "__0_0.distcp"]


def test_names_and_paths_are_those_of_dcp(folder, root, tmp_path):
    state = every_kind_of_value()
    del state["odd"], state["tensors"]["parameter"]  # DCP keeps requires_grad, which has no effect
    save_and_export(state, root, folder)
    dcp_save(state, tmp_path / "own")
    ours, own = metadata_of(folder), metadata_of(tmp_path / "own")
    assert ours.planner_data == own.planner_data
    assert ours.state_dict_metadata == own.state_dict_metadata


def test_import_then_export_keeps_all(folder, root, tmp_path):
    state = every_kind_of_value()
    dcp_save(state, folder)
    shoal.torch.import_dcp(folder, root, 1)
    shoal.torch.export_dcp(root, "latest", tmp_path / "again")
    loaded = loaded_by_dcp(state, tmp_path / "again")
    same_tensors(loaded["tensors"], state["tensors"])
    assert loaded["plain"] == state["plain"] and loaded["odd"] == state["odd"]


def test_large_tensors_are_cut_into_chunks(folder, root, monkeypatch):
    monkeypatch.setattr("shoal._dcp_export.CHUNK_BYTES_MAX", 100)
    state = {
        "rows": torch.arange(60).reshape(20, 3),
        "deep": torch.arange(3 * 2 * 30, dtype=torch.int16).reshape(3, 2, 30),
        "line": torch.arange(1000, dtype=torch.uint8),
        "odd": torch.arange(2 * 5 * 7 * 2, dtype=torch.float64).reshape(2, 5, 7, 2),
        "empty": torch.empty(0, 1000),
    }
    save_and_export(state, root, folder)
    about = metadata_of(folder).state_dict_metadata
    assert len(about["line"].chunks) == 10 and len(about["rows"].chunks) == 5
    assert all(
        chunk.sizes.numel() * about[name].properties.dtype.itemsize <= 100
        for name in state
        for chunk in about[name].chunks
    )
    same_tensors(loaded_by_dcp(state, folder), state)


def test_per_rank_values_are_exported_by_rank(folder, root):
    save_and_export({"seed": shoal.per_rank({"a": torch.arange(3), "n": 4})}, root, folder)
    state = {"seed@rank0": None}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    assert torch.equal(state["seed@rank0"]["a"], torch.arange(3)) and state["seed@rank0"]["n"] == 4


def test_export_does_not_overwrite_and_names_damage(folder, root, tmp_path):
    save_and_export({"a": torch.arange(1000)}, root, folder)
    with pytest.raises(shoal.AlreadyExists, match=r"\.metadata exists"):
        shoal.torch.export_dcp(root, 1, folder)
    with pytest.raises(shoal.NotFound):
        shoal.torch.export_dcp(root, 2, tmp_path / "other")
    (shard,) = root.glob("step-*/*/rank-*.safetensors")
    data = bytearray(shard.read_bytes())
    data[-8] ^= 1
    os.chmod(shard, 0o600)
    shard.write_bytes(data)
    with pytest.raises(shoal.Corrupt, match=r"rank-00000\.safetensors"):
        shoal.torch.export_dcp(root, 1, tmp_path / "other")
    assert not (tmp_path / "other" / ".metadata").exists()


@pytest.mark.parametrize("exporters, loaders", [(4, 1), (2, 3)])
def test_export_by_ranks_is_read_by_ranks_of_dcp(exporters, loaders, folder, root, python_environment):
    run_ranks("dcp_folders", "save_and_export", exporters, python_environment, root, folder)
    names = {f"__{rank}_0.distcp" for rank in range(exporters)}
    assert set(os.listdir(folder)) == {".metadata"} | names
    run_ranks("dcp_folders", "load_by_dcp", loaders, python_environment, folder)


# Regression: small values were read with the ranks of the launcher.
def test_export_by_a_process_group_without_rank_0(folder, root, python_environment):
    root.mkdir(exist_ok=True)
    run_ranks("dcp_folders", "save_and_export_in_group", 3, python_environment, root, folder)
    state = {"w": torch.zeros(8), "note": "", "more": [0, ""]}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    assert torch.equal(state["w"], torch.arange(8.0))
    assert state["note"] == "kept" and state["more"] == [1, "x"]


def test_import_conjugates_and_negates_as_dcp_does(root, tmp_path):
    value = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    state = {"conj": value.conj(), "neg": torch._neg_view(torch.arange(4.0))}
    dcp.save(state, checkpoint_id=tmp_path / "old", no_dist=True)
    shoal.torch.import_dcp(tmp_path / "old", root, 1)
    with shoal.Checkpointer(root, read_only=True) as ck:
        loaded = ck.load(1)
    assert loaded["conj"].tolist() == [1 - 2j, 3 + 4j]
    assert loaded["neg"].tolist() == [0.0, -1.0, -2.0, -3.0]


def test_a_pickle_cannot_change_classes(root, tmp_path):
    dcp.save({"w": torch.ones(2)}, checkpoint_id=tmp_path / "old", no_dist=True)
    metadata = tmp_path / "old" / ".metadata"
    patch = b"cpathlib\nPosixPath\n(N}X\x0a\0\0\0__fspath__ctorch\nSize\nstb0"
    content = metadata.read_bytes()
    metadata.write_bytes(content[:2] + patch + content[2:] if content[:1] == b"\x80" else patch + content)
    with pytest.raises(shoal.Corrupt, match="attributes of a class"):
        shoal.torch.import_dcp(tmp_path / "old", root, 1)


@pytest.mark.parametrize("step", [1.5, True, "7", -1])
def test_import_checks_the_step(root, tmp_path, step):
    dcp.save({"w": torch.ones(2)}, checkpoint_id=tmp_path / "old", no_dist=True)
    with pytest.raises(shoal.InvalidArgument, match="step"):
        shoal.torch.import_dcp(tmp_path / "old", root, step)


def test_import_refuses_names_that_could_not_be_read(root, tmp_path):
    for state, says in (({"": {"a": torch.ones(2)}}, "empty"), ({"__shoal_tree__.x": 1}, "reserved")):
        dcp.save(state, checkpoint_id=tmp_path / says, no_dist=True)
        with pytest.raises(shoal.InvalidArgument, match=says):
            shoal.torch.import_dcp(tmp_path / says, root, 1)


@pytest.mark.parametrize("value", [torch.arange(1000.0), "hello" * 100])
def test_one_flipped_bit_is_found(root, tmp_path, value):
    dcp.save({"w": value}, checkpoint_id=tmp_path / "old", no_dist=True)
    path = tmp_path / "old" / "__0_0.distcp"
    content = bytearray(path.read_bytes())
    needle = value.numpy().tobytes()[400:440] if isinstance(value, torch.Tensor) else b"hellohello"
    content[content.index(needle)] ^= 1
    path.write_bytes(content)
    with pytest.raises(shoal.Corrupt, match="CRC-32"):
        shoal.torch.import_dcp(tmp_path / "old", root, 1)


def test_export_of_a_tensor_that_a_tuple_shares(root, tmp_path):
    root.mkdir()
    shared = torch.arange(3.0)
    with shoal.Checkpointer(root) as ck:
        ck.save(1, {"a": (shared,), "b": shared, "c": shared}).committed()
    shoal.torch.export_dcp(root, 1, tmp_path / "new")
    state = {"b": torch.zeros(3), "c": torch.zeros(3)}
    dcp.load(state, checkpoint_id=tmp_path / "new", no_dist=True)
    assert torch.equal(state["b"], shared) and torch.equal(state["c"], shared)


def test_export_refuses_per_rank_values_in_lists(root, tmp_path):
    root.mkdir()
    with shoal.Checkpointer(root) as ck:
        ck.save(1, {"l": [shoal.per_rank("mine"), 1]}).committed()
    with pytest.raises(shoal.InvalidArgument, match="'l' is a list or a tuple with a per_rank value"):
        shoal.torch.export_dcp(root, 1, tmp_path / "new")


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_rank_that_fails_to_export_ends_the_export_of_all(root, tmp_path, python_environment, failing):
    run_ranks("dcp_folders", "export_with_failure", 3, python_environment, root, tmp_path / "new", failing)
    assert sorted(os.listdir(tmp_path / "new")) == [".metadata", *(f"__{i}_0.distcp" for i in range(3))]


def test_ranks_that_export_different_steps_are_told(root, tmp_path, python_environment):
    run_ranks("dcp_folders", "export_different_steps", 2, python_environment, root, tmp_path / "new")


def test_lists_that_other_exports_have_left_are_ignored_and_removed(root, tmp_path):
    shoal.torch.save({"a": torch.arange(3)}, checkpoint_id=root / "step-1")
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "__0.shoal-export").write_text('{"export": ["another job", 2, 1], "error": "no space"}')
    (folder / "__1.shoal-export").write_text('{"export": ["another job", 2, 1], "rows": [["a", 1]]}')
    (folder / "__1.shoal-export.partial").write_text("")
    (folder / "notes.txt").write_text("of the user")
    shoal.torch.export_dcp(root, 1, folder)
    assert sorted(os.listdir(folder)) == [".metadata", "__0_0.distcp", "notes.txt"]


def test_a_checkpoint_is_not_deleted_while_it_is_exported(root, tmp_path, monkeypatch):
    from shoal import _dcp_export

    ck = shoal.torch.checkpointer(root, node={"keep_last": 1})
    state = {name: torch.arange(9) for name in "abc"}
    ck.save(1, state).committed()
    read = _dcp_export._read
    steps = iter(range(2, 100))

    def saves_meanwhile(*arguments):
        ck.save(next(steps), {"a": torch.zeros(1)}).committed()
        return read(*arguments)

    monkeypatch.setattr(_dcp_export, "_read", saves_meanwhile)
    monkeypatch.setattr(_dcp_export, "GROUP_PARTS_MAX", 1)
    shoal.torch.export_dcp(root, 1, tmp_path / "new")
    assert next(steps) > 4
    same_tensors(loaded_by_dcp(state, tmp_path / "new"), state)
    ck.save(next(steps), {"a": torch.zeros(1)}).committed()
    deadline = time.monotonic() + 60
    while any(each.step == 1 and each.state == "committed" for each in ck.list()):  # it was the export
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("parts_max, bytes_max", [(1, 1 << 20), (3, 1 << 20), (1024, 64), (1024, 1 << 20)])
def test_values_are_read_in_groups(parts_max, bytes_max, root, tmp_path, monkeypatch):
    from shoal import _dcp_export

    monkeypatch.setattr(_dcp_export, "GROUP_PARTS_MAX", parts_max)
    monkeypatch.setattr(_dcp_export, "CHUNK_BYTES_MAX", bytes_max)
    shared = torch.arange(7.0)
    state = {
        "tensors": every_kind_of_value()["tensors"],
        "many": {f"w{i}": torch.full((5, 3), float(i)) for i in range(20)},
        "texts": {f"o{i}": [i, "x" * i] for i in range(20)},
        "twice": {"a": shared, "pair": (shared, 1)},
        "rank": shoal.PerRank({"seed": 7}),
        "none": torch.empty(0, 3),
    }
    reads = []
    read = _dcp_export._read
    monkeypatch.setattr(_dcp_export, "_read", lambda *given: reads.append(len(given[1])) or read(*given))
    shoal.torch.save(state, checkpoint_id=root / "step-1")
    shoal.torch.export_dcp(root, 1, tmp_path / "new")
    into = {"many": {name: torch.zeros(5, 3) for name in state["many"]}, "none": torch.ones(0, 3)}
    into["texts"] = dict.fromkeys(state["texts"])
    into["twice"] = {"a": torch.zeros(7), "pair": None}
    dcp.load(into, checkpoint_id=tmp_path / "new", no_dist=True)
    same_tensors(into["many"], state["many"])
    assert into["texts"] == state["texts"]
    assert torch.equal(into["twice"]["a"], shared) and torch.equal(into["twice"]["pair"][0], shared)
    assert max(reads) <= parts_max
    assert len(reads) < 12 or parts_max < 1024 or bytes_max < 1 << 20, reads


def test_an_export_to_a_full_disk_leaves_nothing_on_it(root, tmp_path, monkeypatch):
    from shoal import _dcp_export

    shoal.torch.save({"a": torch.arange(3)}, checkpoint_id=root / "step-1")

    def is_full(value, stream):
        stream.write(b"x" * 1000)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_dcp_export.torch, "save", is_full)
    with pytest.raises(shoal.NoSpace, match="No space left"):
        shoal.torch.export_dcp(root, 1, tmp_path / "new")
    assert os.listdir(tmp_path / "new") == ["__0.shoal-export"]  # the error, for other ranks


def test_errors_of_the_system_say_what_to_do(root, tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    shoal.torch.save({"a": torch.arange(3)}, checkpoint_id=root / "step-1")
    for call in (
        lambda: shoal.torch.export_dcp(root, 1, file),
        lambda: shoal.torch.export_dcp(root, 1, file / "below"),
        lambda: shoal.torch.import_dcp(file, root, 2),
        lambda: shoal.torch.checkpointer(file),
        lambda: shoal.torch.save({"a": 1}, checkpoint_id=file / "step-1"),
    ):
        with pytest.raises(shoal.IoError, match="cannot .*file.*Pass the path of a folder") as caught:
            call()
        assert "\n" not in str(caught.value)

    def no_right(*arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "new"))

    monkeypatch.setattr("os.makedirs", no_right)
    with pytest.raises(shoal.IoError, match="cannot write to the folder .*new: Permission denied.*right"):
        shoal.torch.export_dcp(root, 1, tmp_path / "new")
    with pytest.raises(shoal.IoError, match="cannot create the root .*new.*Permission denied.*right"):
        shoal.torch.checkpointer(tmp_path / "new")
