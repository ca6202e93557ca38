"""A root in an object store: moto, which the test starts."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import shoal
import shoal._arguments

STORE = pathlib.Path(__file__).parents[2] / "tests" / "storage" / "s3" / "object_store.py"


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    if importlib.util.find_spec("moto") is None:
        if os.environ.get("SHOAL_REQUIRE_PEERS"):
            pytest.fail("moto is not installed")
        pytest.skip("moto is not installed: run tools/python_environment")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, STORE], stdin=pipe, stdout=pipe, text=True) as store:
        facts = json.loads(store.stdout.readline())
        monkeypatch.setenv("AWS_ENDPOINT_URL", facts["endpoint"])
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", facts["access_key"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", facts["secret_key"])
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield f"s3://bucket/{os.getpid()}/{tmp_path.name}"
        store.stdin.close()  # ends it


def test_a_dictionary_is_saved_and_loaded(bucket):
    elements = np.arange(6_000_000, dtype=np.float32)  # 24 MB: more than one part
    with shoal.Checkpointer(bucket) as checkpointer:
        assert checkpointer.root == bucket
        checkpointer.save(1, {"w": elements, "name": "grün"}).committed()
        with pytest.raises(shoal.Refused, match="has a Checkpointer of the root"):
            shoal.Checkpointer(bucket + "/")
    with shoal.Checkpointer(bucket) as checkpointer:
        state = checkpointer.load("latest")
    assert (state["w"] == elements).all() and state["name"] == "grün"


def test_a_load_of_a_wrong_path_creates_nothing(bucket):
    torch = pytest.importorskip("torch")
    import shoal.torch

    state = {"w": torch.zeros(3)}
    for _ in range(2):  # the first one has not created it
        with pytest.raises(shoal.NotFound, match="holds no run.*pass the path of a save"):
            shoal.torch.load(state, checkpoint_id=f"{bucket}/step-1")
    shoal.torch.save({"w": torch.ones(3)}, checkpoint_id=f"{bucket}/step-1")
    shoal.torch.checkpointer(bucket).close()
    shoal.torch.load(state, checkpoint_id=f"{bucket}/step-1")
    assert state["w"].tolist() == [1, 1, 1]
    shoal.torch.checkpointer(bucket).close()


@pytest.mark.parametrize("root", ["s3://", "s3:///"])
def test_a_root_names_a_bucket(root):
    with pytest.raises(shoal.InvalidArgument, match="names no bucket"):
        shoal.Checkpointer(root)


def test_a_root_has_one_spelling():
    assert shoal._arguments.root("s3://b//x/", "root") == "s3://b/x"
    assert shoal._arguments.root("x", "root") == os.path.abspath("x")


# A Path has one '/' where the text had two, and was a folder below the working folder.
@pytest.mark.parametrize("root", [pathlib.Path("s3://b/x"), "s3:/b/x"])
def test_a_root_that_a_path_has_shortened_is_rejected(root):
    with pytest.raises(shoal.InvalidArgument, match="as a text, not as a Path"):
        shoal.Checkpointer(root)


def test_a_variable_with_a_shortened_root_is_rejected(monkeypatch):
    monkeypatch.setenv("SHOAL_ROOT", "s3:/b/x")
    with pytest.raises(shoal.InvalidArgument, match="which lacks a '/'"):
        shoal.Checkpointer()


@pytest.mark.parametrize("root", ["gs://b/x", pathlib.Path("hdfs://b/x")])
def test_a_root_of_another_kind_is_rejected(root):
    with pytest.raises(shoal.InvalidArgument, match="s3://BUCKET/PREFIX, is needed"):
        shoal.Checkpointer(root)


def test_folders_to_export_to_are_local(checkpointer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpointer.save(1, {"w": np.ones(3)}).committed()
    with pytest.raises(shoal.InvalidArgument, match="is no local path"):
        checkpointer.export_safetensors(1, "s3://bucket/out")
    assert [each.name for each in tmp_path.iterdir()] == ["root"]


def test_a_folder_of_dcp_is_imported_only_into_a_root_that_exists_or_with_create(
    bucket, tmp_path, monkeypatch
):
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as dcp

    dcp.save({"w": torch.arange(5)}, checkpoint_id=tmp_path / "step-5", no_dist=True)
    monkeypatch.chdir(tmp_path)
    program = os.path.join(os.path.dirname(shoal.__file__), "bin", "shoal")

    def imported(*arguments):
        done = subprocess.run([program, "import", *arguments], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stderr

    status, says = imported("step-5", bucket)
    assert status == 2 and "Use --create for a new root" in says, says
    status, says = imported("step-5", bucket, "--create")
    assert status == 0, says
    status, says = imported("s3://bucket/step-5", bucket)
    assert status == 2 and "is no local path" in says, says
    status, says = imported("step-5", "gs://bucket/x", "--create")
    assert status == 2 and "neither a local path nor" in says, says
    assert [each.name for each in tmp_path.iterdir()] == ["step-5"]
    with shoal.Checkpointer(bucket, read_only=True) as checkpointer:
        assert checkpointer.load(5)["w"].tolist() == [0, 1, 2, 3, 4]
