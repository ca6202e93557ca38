"""Sharded states of several ranks. The process group of sharded_states.py has no working collective."""

import pytest

import shoal
from ranks import run_ranks

torch = pytest.importorskip("torch")

LAYOUTS = ["fsdp", "tp", "hsdp", "fsdp_tp", "mixed"]


@pytest.mark.parametrize("saved", LAYOUTS)
def test_a_layout_is_loaded_as_every_other(root, python_environment, saved):
    root.mkdir()
    run_ranks("sharded_states", "save", 4, python_environment, root, saved, 1)
    for loaded in LAYOUTS:
        run_ranks("sharded_states", "load", 4 if loaded != "tp" else 2, python_environment, root, loaded, 1)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 8), (3, 1), (8, 2), (5, 4), (6, 7), (7, 6)])
def test_other_numbers_of_ranks(root, python_environment, before, after):
    root.mkdir()
    run_ranks("sharded_states", "save", before, python_environment, root, "fsdp", 1)
    run_ranks("sharded_states", "load", after, python_environment, root, "mixed", 1)


def test_the_calls_of_dcp_need_no_collective(root, python_environment):
    run_ranks("sharded_states", "save_and_load_by_dcp_calls", 4, python_environment, root)


def test_stages_of_a_pipeline(root, python_environment):
    root.mkdir()
    run_ranks("sharded_states", "save_stages", 3, python_environment, root)
    with shoal.Checkpointer(root) as checkpointer:
        loaded = checkpointer.load()
    assert {name: value["weight"].tolist() for name, value in loaded["layers"].items()} == {
        str(rank): [rank] * 4 for rank in range(3)
    }
    assert loaded["stage"] == {f"is {rank}": True for rank in range(3)} and loaded["step"] == 3


def test_a_rank_that_cannot_save_aborts_the_save_of_the_others(root, python_environment):
    root.mkdir()
    run_ranks("sharded_states", "raising_rank", 2, python_environment, root)


@pytest.mark.parametrize(
    ("function", "says"), [("raise_on_rank_1", "rank 1, exit status 1"), ("killed", "rank 0, exit status -9")]
)
def test_a_rank_that_fails_fails_its_test(python_environment, function, says):
    with pytest.raises(AssertionError, match=says):
        run_ranks("sharded_states", function, 2, python_environment)
