"""What the ranks of replica_check_test.py do; each function runs on every rank."""

import logging

import numpy as np

import shoal
from ranks import rank_and_world

SAVES_OF_A_ROTATION = 20


class Warnings(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def replicated_state(rank):
    weights = np.arange(3 << 18, dtype=np.float32)  # 3 MiB, the same on all ranks
    return weights, {"model": shoal.replicated({"w": weights}), "rank": shoal.per_rank(rank)}


def flip_a_bit(array):
    array.view(np.uint32)[300_000] ^= 1 << 20  # byte 1,200,000: in block 1


def warn(root):
    rank, world_size = rank_and_world()
    warnings = Warnings()
    logging.getLogger("shoal").addHandler(warnings)
    weights, state = replicated_state(rank)
    if rank == 1:
        flip_a_bit(weights)
    with shoal.Checkpointer(root, replica_check="warn") as checkpointer:
        found = []
        for step in range(1, SAVES_OF_A_ROTATION + 1):
            handle = checkpointer.save(step, state)
            handle.committed()
            assert 0 < handle.stats.replica_bytes <= (3 << 20) / 20 + 8
            if handle.warning:
                found.append(handle.warning)
    assert len(found) == 1, found
    assert "replicas differ: 'model.w' [0:786432], block 1 (bytes " in found[0], found
    assert "rank 1 (host " in found[0] and "holds other bytes than ranks 0, 2 (host " in found[0], found
    differ = [text for text in warnings.texts if "replicas differ" in text]
    assert len(differ) == 1 and found[0] in differ[0], warnings.texts


def abort(root):
    rank, world_size = rank_and_world()
    weights, state = replicated_state(rank)
    with shoal.Checkpointer(root, replica_check="abort") as checkpointer:
        checkpointer.save(1, state).committed()
        if rank == 1:
            flip_a_bit(weights)
        aborted = []
        for step in range(2, SAVES_OF_A_ROTATION + 2):
            weights[0] = step  # otherwise nothing changes
            try:
                checkpointer.save(step, state).committed()
            except shoal.Aborted as error:
                aborted.append(str(error))
    assert len(aborted) == 1, aborted
    assert "replicas differ: 'model.w'" in aborted[0] and "block 1" in aborted[0], aborted
