"""Sharded states of several ranks. The process group of sharded_states.py has no working collective."""

import pytest

import shoal
from ranks import run_ranks

torch = pytest.importorskip("torch")

LARGEST_WORLD = 8


def test_every_layout_and_number_of_ranks_is_loaded_as_every_other(root, python_environment):
    """All pairs of 40: 1 to 8 ranks with FSDP2, TP, HSDP, FSDP2 x TP and a mixture of meshes."""
    root.mkdir()
    for world_size in range(1, LARGEST_WORLD + 1):
        run_ranks("sharded_states", "save_under_each", world_size, python_environment, root)
    for world_size in range(1, LARGEST_WORLD + 1):
        run_ranks("sharded_states", "load_under_each", world_size, python_environment, root, LARGEST_WORLD)


def test_the_calls_of_dcp_need_no_collective(root, python_environment):
    run_ranks("sharded_states", "save_and_load_by_dcp_calls", 4, python_environment, root)


def test_ranks_that_disagree_which_names_are_aliases(root, python_environment):
    """What is an alias on one rank alone was loaded as one, although it had a value of its own. What is one
    on all ranks that have elements of it was not loaded."""
    root.mkdir()
    run_ranks("sharded_states", "save_views_of_nothing_and_tied_tensors", 2, python_environment, root)
    with shoal.Checkpointer(root) as checkpointer:
        for step in (1, 2):
            loaded = checkpointer.load(step)
            found = {name: value.tolist() for name, value in loaded.items()}
            assert found == {"key": [[1, 2]], "value": [[3, 4]], "tied": [5, 6], "too": [5, 6]}, (step, found)
            into = {"value": torch.zeros(1, 2), "too": torch.zeros(2)}
            checkpointer.load(step, into=into)
            assert into["value"].tolist() == [[3, 4]] and into["too"].tolist() == [5, 6]


def test_stages_of_a_pipeline(root, python_environment):
    root.mkdir()
    run_ranks("sharded_states", "save_stages", 3, python_environment, root)
    with shoal.Checkpointer(root) as checkpointer:
        loaded = checkpointer.load()
    assert {name: value["weight"].tolist() for name, value in loaded["layers"].items()} == {
        str(rank): [rank] * 4 for rank in range(3)
    }
    assert loaded["stage"] == {f"is {rank}": True for rank in range(3)} and loaded["step"] == 3


@pytest.mark.parametrize(("kind", "warns"), [("stages", True), ("replicas", False), ("more on one", False)])
def test_optimizers_of_stages_that_save_under_one_name_are_warned_of(root, python_environment, kind, warns):
    root.mkdir()
    run_ranks("sharded_states", "save_optimizers", 2, python_environment, root, kind, int(warns))


def test_a_rank_that_cannot_save_aborts_the_save_of_the_others(root, python_environment):
    root.mkdir()
    run_ranks("sharded_states", "raising_rank", 2, python_environment, root)


@pytest.mark.parametrize("door", ["dictionary", "dcp", "import"])
def test_a_rank_that_cannot_describe_its_state_aborts_the_save_of_the_others(root, python_environment, door):
    root.mkdir()
    run_ranks("sharded_states", "rank_that_cannot_describe", 2, python_environment, root, door)


@pytest.mark.parametrize(
    ("function", "says"), [("raise_on_rank_1", "rank 1, exit status 1"), ("killed", "rank 0, exit status -9")]
)
def test_a_rank_that_fails_fails_its_test(python_environment, function, says):
    with pytest.raises(AssertionError, match=says):
        run_ranks("sharded_states", function, 2, python_environment)
