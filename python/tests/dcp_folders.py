"""States that DCP saves, and what the ranks of dcp_folder_test run."""

import errno
import os
import pathlib
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import shoal
import shoal.torch
from ranks import rank_and_world

DTYPES = [
    getattr(torch, name)
    for name in "bool uint8 int8 int16 uint16 float16 bfloat16 int32 uint32 float32 float64 int64 uint64 "
    "complex64 float8_e4m3fn float8_e5m2 float8_e8m0fnu float8_e4m3fnuz float8_e5m2fnuz".split()
]


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def filled(dtype, *shape):
    """A tensor of this dtype with bytes that differ, valid values for bool."""
    size = torch.empty((), dtype=dtype).element_size()
    count = torch.Size(shape).numel() * size
    data = (torch.arange(count) * 37 % 251).to(torch.uint8)
    return (data % 2 if dtype == torch.bool else data).view(dtype).reshape(shape)


def same_tensors(a, b):
    assert list(a) == list(b)
    for name in a:
        assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape, name
        assert torch.equal(bits(a[name]), bits(b[name])), name


def every_kind_of_value():
    tensors = {str(dtype).removeprefix("torch."): filled(dtype, 5, 3) for dtype in DTYPES}
    tensors |= {f"turned_{name}": value.t() for name, value in list(tensors.items())[:12]}
    tensors["scalar"] = torch.tensor(41, dtype=torch.int64)
    tensors["empty"] = torch.empty(0, 4, dtype=torch.int32)
    tensors["none_in_the_middle"] = torch.empty(3, 0, 2)
    tensors["part"] = torch.arange(100.0)[10:20]
    tensors["every_other"] = torch.arange(100)[::2]
    tensors["parameter"] = torch.nn.Parameter(torch.ones(2, 2))
    return {
        "tensors": tensors,
        "plain": {
            "bytes": b"\x00\xff",
            "text": "ü",
            "none": None,
            "tuple": (1, 2.5),
            "size": torch.Size([2]),
        },
        "nested": {"list": [{"a": torch.arange(3)}, {"b": 2}]},
        "odd": {"set": {1, 2}},
    }


# ---- on ranks ----


def group():
    rank, world = rank_and_world()
    if world > 1:
        store = os.environ["SHOAL_TEST_STORE"]
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return init_device_mesh("cpu", (world,))


def whole_values():
    return {
        "rows": filled(torch.float32, 13, 6),
        "columns": filled(torch.int64, 3, 10),
        "one_row": filled(torch.bfloat16, 1, 8),  # most ranks hold nothing
        "replicated": filled(torch.uint16, 7),
        "scalar": filled(torch.int32),
    }


def placements():
    return {
        "rows": Shard(0),
        "columns": Shard(1),
        "one_row": Shard(0),
        "replicated": Replicate(),
        "scalar": Replicate(),
    }


def sharded_state(zero=False):
    mesh, where = group(), placements()
    values = {
        name: distribute_tensor(value.zero_() if zero else value, mesh, [where[name]], src_data_rank=None)
        for name, value in whole_values().items()
    }
    return {"model": values, "step": 0 if zero else 7, "plain": torch.zeros(4) if zero else torch.ones(4)}


def check_sharded(state):
    mesh, where = state["model"]["rows"].device_mesh, placements()
    for name, value in whole_values().items():
        expected = distribute_tensor(value, mesh, [where[name]], src_data_rank=None).to_local()
        assert isinstance(state["model"][name], DTensor)
        assert torch.equal(bits(state["model"][name].to_local()), bits(expected)), name
    assert state["step"] == 7 and torch.equal(state["plain"], torch.ones(4))


def save_sharded(folder):
    os.environ["SHOAL_TEST_STORE"] = f"{folder}.save.store"
    dcp.save(sharded_state(), checkpoint_id=folder)


def import_on_each(folder, root):
    pathlib.Path(root).mkdir(exist_ok=True)
    assert not dist.is_initialized()
    assert shoal.torch.import_dcp(folder, root, 3).step == 3


def load_imported(root):
    os.environ["SHOAL_TEST_STORE"] = f"{root}.load.store"
    state = sharded_state(zero=True)
    shoal.torch.load(state, checkpoint_id=f"{root}/step-3")
    check_sharded(state)


def save_and_export(root, folder):
    os.environ["SHOAL_TEST_STORE"] = f"{folder}.save.store"
    shoal.torch.save(sharded_state(), checkpoint_id=f"{root}/step-3")
    dist.destroy_process_group()  # the export needs none
    shoal.torch.export_dcp(root, 3, folder)
    assert os.path.exists(f"{folder}/.metadata")


def save_and_export_in_group(root, folder):
    if os.environ["RANK"] == "0":
        return
    with shoal.Checkpointer(root, process_group=[1, 2]) as checkpointer:
        checkpointer.save(3, {"w": torch.arange(8.0), "note": "kept", "more": [1, "x"]}).committed()
        shoal.torch.export_dcp(root, 3, folder)


def load_by_dcp(folder):
    os.environ["SHOAL_TEST_STORE"] = f"{folder}.load.store"
    state = sharded_state(zero=True)
    dcp.load(state, checkpoint_id=folder)
    check_sharded(state)


def save_sharded_here(root):
    os.environ["SHOAL_TEST_STORE"] = f"{root}.save.store"
    shoal.torch.save(sharded_state(), checkpoint_id=f"{root}/step-3")


def export_with_failure(root, folder, failing):
    """One rank has no space in its first attempt. All learn of it, and try again."""
    from shoal import _dcp_export

    rank, _ = rank_and_world()
    ck = shoal.torch.checkpointer(root)
    ck.save(1, {name: torch.arange(300) for name in "abcdef"}).committed(120)
    publish = _dcp_export._publish

    def without_space(path, write):
        if path.endswith(".distcp"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        publish(path, write)

    begun = time.monotonic()
    if rank == int(failing):
        _dcp_export._publish = without_space
    try:
        shoal.torch.export_dcp(root, 1, folder)
    except shoal.NoSpace as error:
        assert rank == int(failing) and "No space left on device" in str(error), error
    except shoal.Aborted as error:
        assert f"failed on rank {failing}" in str(error) and "No space left" in str(error), error
    else:
        raise AssertionError("the export of one rank is complete")
    assert time.monotonic() - begun < 60, "the timeout is an hour"
    _dcp_export._publish = publish
    shoal.torch.export_dcp(root, 1, folder, timeout=100)


def export_different_steps(root, folder):
    rank, _ = rank_and_world()
    ck = shoal.torch.checkpointer(root)
    for step in (1, 2):
        ck.save(step, {"a": torch.arange(3)}).committed(120)
    try:
        shoal.torch.export_dcp(root, 1 + rank, folder, timeout=100)
    except (shoal.InvalidArgument, shoal.Aborted) as error:
        assert "step 2" in str(error) and "pass the number of a step" in str(error), error
    else:
        raise AssertionError("the folder has parts of two checkpoints")
