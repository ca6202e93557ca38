"""replica_check: a bit that flips in the memory of one rank is found by one of twenty saves."""

import pytest

import shoal
from ranks import run_ranks


@pytest.mark.parametrize(("policy", "world_size"), [("warn", 3), ("abort", 2)])
def test_a_flipped_bit_is_named_with_tensor_block_and_ranks(root, python_environment, policy, world_size):
    root.mkdir()
    run_ranks("replica_ranks", policy, world_size, python_environment, root)


def test_a_policy_that_does_not_exist_is_rejected(tmp_path):
    with pytest.raises(shoal.InvalidArgument, match="replica_check is 'maybe': off, warn or abort is needed"):
        shoal.Checkpointer(tmp_path, replica_check="maybe")


def test_rank_local_saves_are_rejected(tmp_path):
    with pytest.raises(shoal.InvalidArgument, match="replica_check needs mode collective-free or collective"):
        shoal.Checkpointer(tmp_path, mode="rank-local", replica_check="warn")
