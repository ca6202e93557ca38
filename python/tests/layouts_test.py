"""The oracle of layouts: what torch holds of distribute_tensor(arange(n)), and the boxes that Shoal computes.

A fake process group makes the DTensor of every rank in this process. Its local tensor names, one by one, the
elements of the whole that the rank holds.
"""

import itertools
import math
import random

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed.tensor import DeviceMesh, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

from shoal import _client, _tensors  # noqa: E402

MESHES = [
    (1,),
    (2,),
    (3,),
    (4,),
    (7,),
    (8,),
    (2, 2),
    (2, 3),
    (4, 2),
    (2, 4),
    (3, 2),
    (2, 2, 2),
    (1, 4),
    (2, 1, 3),
]
SHAPES = [(), (1,), (5,), (8,), (17,), (4, 6), (7, 3), (2, 3, 5), (8, 1), (0, 4), (3, 4, 2, 2)]


def elements_by_boxes(shape, mesh, placements, rank):
    """The numbers of the elements, in the order of the local tensor."""
    local_shape, boxes, places = _client.local_shards(shape, mesh, placements, rank)
    whole = torch.arange(math.prod(shape)).reshape(shape)
    local = torch.full(local_shape, -1, dtype=whole.dtype)
    for (offsets, sizes), (at, at_sizes) in zip(boxes, places):
        assert sizes == at_sizes
        source = tuple(slice(offset, offset + size) for offset, size in zip(offsets, sizes))
        target = tuple(slice(offset, offset + size) for offset, size in zip(at, sizes))
        local[target] = whole[source]
    return local


def cases():
    for mesh_shape, shape in itertools.product(MESHES, SHAPES):
        choices = [Replicate(), *(Shard(dim) for dim in range(len(shape)))]
        combinations = list(itertools.product(choices, repeat=len(mesh_shape)))
        random.Random(str((mesh_shape, shape))).shuffle(combinations)
        for placements in combinations[:6]:
            yield mesh_shape, shape, placements


@pytest.fixture
def fake_world():
    def start(rank, world_size):
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())

    yield start
    if dist.is_initialized():
        dist.destroy_process_group()


def test_hundreds_of_meshes_and_placements(fake_world):
    compared = 0
    by_world = {}
    for case in cases():
        by_world.setdefault(math.prod(case[0]), []).append(case)
    for world_size, of_world in by_world.items():
        for rank in range(world_size):
            fake_world(rank, world_size)
            meshes = {}
            for mesh_shape, shape, placements in of_world:
                if mesh_shape not in meshes:
                    ranks = torch.arange(world_size).reshape(mesh_shape)
                    meshes[mesh_shape] = DeviceMesh("cpu", ranks, _init_backend=False)
                mesh = meshes[mesh_shape]
                whole = torch.arange(math.prod(shape)).reshape(shape)
                tensor = distribute_tensor(whole, mesh, placements, src_data_rank=None)
                ours = elements_by_boxes(
                    shape, _tensors.mesh_of(mesh), _tensors.placements_of(tensor.placements, "x"), rank
                )
                assert torch.equal(ours, tensor.to_local()), (mesh_shape, shape, placements, rank)
                compared += 1
    assert compared > 2000, compared


def test_strided_shards_of_fsdp_over_tensor_parallelism(fake_world):
    """FSDP2 shards what tensor parallelism has sharded: the placement of its mesh dimension is strided. Most
    of these numbers of rows do not divide evenly."""
    compared = 0
    for data, tensor_parallel in itertools.product((2, 3, 4), (2, 3, 4)):
        world_size = data * tensor_parallel
        placements = [_StridedShard(0, split_factor=tensor_parallel), Shard(0)]
        for rank in range(world_size):
            fake_world(rank, world_size)
            ranks = torch.arange(world_size).reshape(data, tensor_parallel)
            mesh = DeviceMesh("cpu", ranks, _init_backend=False)
            for rows in range(1, 26):
                whole = torch.arange(rows * 2).reshape(rows, 2)
                tensor = distribute_tensor(whole, mesh, placements, src_data_rank=None)
                described = _tensors.placements_of(tensor.placements, "x")
                ours = elements_by_boxes((rows, 2), _tensors.mesh_of(mesh), described, rank)
                assert torch.equal(ours, tensor.to_local()), (data, tensor_parallel, rows, rank)
                compared += 1
    assert compared > 2000, compared
