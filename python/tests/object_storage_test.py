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


@pytest.mark.parametrize("root", ["s3://", "s3:///"])
def test_a_root_names_a_bucket(root):
    with pytest.raises(shoal.InvalidArgument, match="names no bucket"):
        shoal.Checkpointer(root)


def test_a_root_has_one_spelling():
    assert shoal._arguments.root("s3://b//x/", "root") == "s3://b/x"
    assert shoal._arguments.root("x", "root") == os.path.abspath("x")
