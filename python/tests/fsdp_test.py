"""FSDP2, HSDP and tensor parallelism as torch makes them: training continues where it was."""

import pytest

from ranks import run_ranks

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("parallel", ["fsdp", "hsdp", "fsdp_tp"])
def test_training_continues_bit_for_bit_on_as_many_ranks(root, tmp_path, python_environment, parallel):
    root.mkdir()
    run_ranks("fsdp_models", "save", 4, python_environment, root, tmp_path / "store1", parallel)
    run_ranks("fsdp_models", "load", 4, python_environment, root, tmp_path / "store2", parallel, 0)


@pytest.mark.parametrize(
    ("saved", "loaded", "ranks"), [("fsdp", "fsdp_tp", 2), ("fsdp_tp", "fsdp", 3), ("hsdp", "fsdp", 1)]
)
def test_training_continues_on_other_ranks(root, tmp_path, python_environment, saved, loaded, ranks):
    """The state is equal bit for bit; the losses may differ by the order of sums."""
    root.mkdir()
    run_ranks("fsdp_models", "save", 4, python_environment, root, tmp_path / "store1", saved)
    run_ranks("fsdp_models", "load", ranks, python_environment, root, tmp_path / "store2", loaded, 1e-5)


@pytest.mark.parametrize(
    ("saved", "loaded", "ranks", "tolerance"), [("fsdp", "fsdp", 4, 0), ("hsdp", "fsdp_tp", 2, 1e-5)]
)
def test_dcp_saves_and_loads_sharded_models_through_the_storages(
    root, tmp_path, python_environment, saved, loaded, ranks, tolerance
):
    root.mkdir()
    run_ranks("fsdp_models", "dcp_save", 4, python_environment, root, tmp_path / "store1", saved)
    arguments = (root, tmp_path / "store2", loaded, tolerance)
    run_ranks("fsdp_models", "dcp_load", ranks, python_environment, *arguments)
