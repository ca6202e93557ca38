"""Arrays of which each rank states its parts itself: shoal.boxes, flat shards, ShardedTensor."""

import itertools
import math

import numpy as np
import pytest

import shoal
from ranks import run_ranks
from shoal import _wrappers


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 4), (1, 5), (4, 1), (2, 3, 4), (3, 1, 2, 2)])
def test_every_flat_range_is_tiled_by_boxes_in_its_order(shape):
    whole = np.arange(math.prod(shape)).reshape(shape)
    for begin, end in itertools.combinations_with_replacement(range(whole.size + 1), 2):
        boxes = _wrappers._boxes_of_range(shape, begin, end)
        parts = [
            whole[tuple(slice(at, at + size) for at, size in zip(offsets, sizes))] for offsets, sizes in boxes
        ]
        numbers = np.concatenate([np.zeros(0, int), *(part.reshape(-1) for part in parts)])
        assert numbers.tolist() == list(range(begin, end))
        assert len(boxes) <= max(1, 2 * len(shape) - 1)


def test_boxes_of_numpy_arrays_in_one_process(checkpointer):
    whole = np.arange(12.0).reshape(3, 4)
    parts = [((0, 0), whole[:2]), ((2, 0), whole[2:, :3]), ((2, 3), whole[2:, 3:])]
    state = {"x": shoal.boxes((3, 4), parts)}
    for step in (1, 2):
        whole += step
        checkpointer.save(step, state).committed()
        np.testing.assert_array_equal(checkpointer.load(step)["x"], whole)
    columns = [np.zeros((3, 2)), np.zeros((3, 4))[:, 1:3]]
    checkpointer.load(2, into={"x": shoal.boxes((3, 4), [((0, 0), columns[0]), ((0, 2), columns[1])])})
    np.testing.assert_array_equal(np.concatenate(columns, axis=1), whole)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: shoal.boxes((3,), [((2,), np.zeros(2))]), "is not inside of the shape"),
        (lambda: shoal.boxes((3, 1), [((0,), np.zeros(3))]), "one number for each dimension"),
        (lambda: shoal.boxes((3,), [((0,), 5)]), "one number for each dimension"),
        (lambda: shoal.boxes((-3,), []), "integers of at least 0"),
        (lambda: shoal.boxes(3, []), "integers of at least 0"),
        (lambda: shoal.boxes((3,), [(0, np.zeros(3))]), "offsets=0: a list of integers"),
        (lambda: shoal.boxes((3,), None), "a pair for each part"),
        (lambda: shoal.boxes((3,), np.zeros(3)), "a pair for each part"),
        (
            lambda: shoal.boxes((3,), [((0,), np.zeros(2)), ((2,), np.zeros(1, int))]),
            "'x' has parts of the dtypes F64 and I64",
        ),
        (lambda: shoal.boxes((3,), [((0,), np.zeros(2))]), "'x'"),  # nobody has the last element
        (lambda: shoal.per_rank(shoal.boxes((2,), [((0,), np.zeros(2))])), "a part of an array"),
    ],
)
def test_wrong_boxes_are_errors(checkpointer, make, says):
    with pytest.raises(shoal.Error, match=says):
        checkpointer.save(1, {"x": make()}).committed()


def test_wrong_flat_shards_are_errors():
    torch = pytest.importorskip("torch")
    import shoal.torch

    for flat, begin, says in (
        (torch.zeros(5), 0, "leave out the padding"),
        (torch.zeros(2), 3, "leave out the padding"),
        (torch.zeros(2), -1, "leave out the padding"),
        (torch.zeros(1, 2), 0, "of one dimension"),
        (torch.zeros(4)[::2], 0, "contiguous"),
        (torch.zeros(4), 0.0, "the number of an element"),
    ):
        with pytest.raises(shoal.InvalidArgument, match=says):
            shoal.torch.flat_shard(flat, (2, 2), begin)


def test_a_flat_shard_of_a_tensor_without_elements_is_saved(checkpointer):
    torch = pytest.importorskip("torch")
    import shoal.torch

    flat = torch.zeros(0, dtype=torch.bfloat16)
    checkpointer.save(1, {"x": shoal.torch.flat_shard(flat, (0, 3))}).committed()
    loaded = checkpointer.load(1)["x"]
    assert loaded.shape == (0, 3) and loaded.dtype is torch.bfloat16


def test_a_flat_shard_that_no_rank_holds_is_missed(checkpointer):
    torch = pytest.importorskip("torch")
    import shoal.torch

    checkpointer.save(1, {"x": torch.zeros(4)}).committed()
    with pytest.raises(shoal.Error, match="no box covers"):
        checkpointer.save(2, {"x": shoal.torch.flat_shard(torch.zeros(0), (4,))}).committed()


def test_an_array_that_no_rank_holds_is_warned_of_once(checkpointer, caplog):
    state = {"x": shoal.boxes((4,), []), "y": 1, "z": shoal.boxes((1,), [((0,), np.zeros(1))])}
    for step in (1, 2, 3):
        state["z"].parts[0][1][:] = step
        checkpointer.save(step, state).committed()
    checkpointer.wait_all()
    found = [record.getMessage() for record in caplog.records if "no rank holds" in record.getMessage()]
    assert len(found) == 1 and "step 1 has no value 'x'" in found[0]


@pytest.mark.parametrize("holder", [0, 1])
def test_a_rank_without_a_part_does_not_say_whose_array_it_is(root, holder):
    """It said that the array is one of torch, and the load gave a tensor to a program of numpy."""
    root.mkdir()
    whole = np.arange(4.0)
    names = [f"x{i}" for i in range(8)]  # the order of the structures of the ranks depends on their hashes
    ranks = [shoal.Checkpointer(root, rank=rank, world_size=2, job_id="two") for rank in range(2)]
    for step in range(len(names)):
        handles = []
        for rank, checkpointer in enumerate(ranks):
            parts = [((0,), whole)] if rank == holder else []
            state = {name: shoal.boxes((4,), parts) for name in names[: step + 1]}
            handles.append(checkpointer.save(step + 1, state))
        for handle in handles:
            handle.committed(20)
    for step in range(len(names)):
        loaded = ranks[0].load(step + 1)
        assert {type(value) for value in loaded.values()} == {np.ndarray}, step
        np.testing.assert_array_equal(loaded["x0"], whole)
    for checkpointer in ranks:
        checkpointer.close()


@pytest.mark.parametrize("ranks", [1, 3])
def test_flat_shards_are_loaded_as_any_other_sharding(root, python_environment, ranks):
    pytest.importorskip("torch")
    root.mkdir()
    run_ranks("flat_shards", "save", 4, python_environment, root)
    run_ranks("flat_shards", "load", ranks, python_environment, root)


def test_sharded_tensors_are_loaded_as_any_other(root, tmp_path, python_environment):
    pytest.importorskip("torch")
    root.mkdir()
    run_ranks("flat_shards", "save_sharded_tensors", 2, python_environment, root, tmp_path / "store")


def test_models_and_optimizers_of_fsdp1(root, tmp_path, python_environment):
    """Flat shards of the parameters, and the ShardedTensors of SHARDED_STATE_DICT, on other ranks."""
    pytest.importorskip("torch")
    root.mkdir()
    run_ranks("flat_shards", "save_fsdp1", 3, python_environment, root, tmp_path / "store1")
    run_ranks("flat_shards", "load_fsdp1", 2, python_environment, root, tmp_path / "store2")
