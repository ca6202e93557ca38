"""States of JAX, and what the processes of jax_test run. Each process has virtual devices on its CPU."""

import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import shoal
import shoal.jax

DTYPES = "bool int8 uint8 int16 uint16 int32 uint32 float32 float16 bfloat16 complex64".split() + [
    "float8_e4m3fn",
    "float8_e5m2",
]
SHAPE = (16, 24)


def mesh(*shape):
    names = ("x", "y", "z")[: len(shape)]
    return Mesh(np.array(jax.devices()).reshape(shape), names)


def values(dtype, shape=SHAPE):
    data = np.arange(int(np.prod(shape, dtype=int))) * 37 % 113
    return np.asarray(jnp.asarray(data.reshape(shape)).astype(dtype))


def put(value, sharding):
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])


def same_bits(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert np.array_equal(np.atleast_1d(a).view(np.uint8), np.atleast_1d(b).view(np.uint8))


def check(array, value, sharding):
    """Every shard on a device of this process has the bits of its part."""
    assert isinstance(array, jax.Array) and array.sharding == sharding and array.shape == value.shape
    for shard in array.addressable_shards:
        same_bits(np.asarray(shard.data), np.ascontiguousarray(value[shard.index]))


def specs():
    return {
        "rows": PartitionSpec("x"),
        "columns": PartitionSpec(None, "y"),
        "both": PartitionSpec("x", "y"),
        "joined": PartitionSpec(("y", "x"), None),
        "replicated": PartitionSpec(),
    }


def state_on(of_mesh):
    return {name: put(values(jnp.float32), NamedSharding(of_mesh, spec)) for name, spec in specs().items()}


# ---- on processes ----


def start(port, devices):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    jax.config.update("jax_num_cpu_devices", int(devices))
    jax.distributed.initialize(f"127.0.0.1:{port}", world, rank)
    assert jax.process_count() == world and jax.process_index() == rank
    assert len(jax.devices()) == world * int(devices)


def save_on_each(root, port):
    start(port, 4)
    pathlib.Path(root).mkdir(exist_ok=True)
    with shoal.Checkpointer(root) as ck:
        state = state_on(mesh(2, 4))
        state["host"] = np.arange(3)
        state["own"] = jax.device_put(jnp.arange(5.0), jax.local_devices()[0])
        shoal.jax.save(ck, 1, state).committed()


def load_on_each(root, port):
    start(port, 4)
    with shoal.Checkpointer(root) as ck:
        of_mesh = mesh(4, 2)
        like = {
            name: jax.ShapeDtypeStruct(SHAPE, jnp.float32, sharding=NamedSharding(of_mesh, spec))
            for name, spec in specs().items()
        }
        loaded = shoal.jax.load(ck, 1, like)
        for name, spec in specs().items():
            check(loaded[name], values(jnp.float32), NamedSharding(of_mesh, spec))
        # On devices of process 0 alone, as a stage of a pipeline; and on no device in particular.
        stage = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("x",)), PartitionSpec("x"))
        like = {
            "rows": jax.ShapeDtypeStruct(SHAPE, jnp.float32, sharding=stage),
            "own": jax.ShapeDtypeStruct((5,), jnp.float32),
        }
        loaded = shoal.jax.load(ck, 1, like)
        assert loaded["own"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
        if jax.process_index() == 0:
            check(loaded["rows"], values(jnp.float32), stage)
        else:
            assert not loaded["rows"].addressable_shards and loaded["rows"].shape == SHAPE
