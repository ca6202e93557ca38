"""shoal.jax: eight virtual devices in a process, and two processes with four each."""

import collections
import json
import os
import socket
import struct

import numpy as np
import pytest

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
jax = pytest.importorskip("jax", reason="needs the package jax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

import shoal  # noqa: E402
import shoal.jax  # noqa: E402
from jax_states import DTYPES, SHAPE, check, mesh, put, same_bits, specs, state_on, values  # noqa: E402
from ranks import run_ranks  # noqa: E402


def like_on(of_mesh):
    return {
        name: jax.ShapeDtypeStruct(SHAPE, jnp.float32, sharding=NamedSharding(of_mesh, spec))
        for name, spec in specs().items()
    }


def payload_of(root):
    """The bytes of tensors in the shards of a root, by rank."""
    out = collections.Counter()
    for path in root.glob("step-*/*/rank-*.safetensors"):
        with open(path, "rb") as stream:
            header = json.loads(stream.read(struct.unpack("<Q", stream.read(8))[0]))
        objects = json.loads(header["__metadata__"]["shoal"])["objects"]
        pieces = {key: each for key, each in header.items() if key != "__metadata__" and key not in objects}
        rank = path.name[: len("rank-00000")]
        out[rank] += sum(each["data_offsets"][1] - each["data_offsets"][0] for each in pieces.values())
    return out


@pytest.mark.parametrize("shape", [(8, 1), (1, 8), (4, 2)])
def test_any_sharding_is_loaded_under_any_other(shape, checkpointer, root):
    assert len(jax.devices()) == 8
    shoal.jax.save(checkpointer, 1, state_on(mesh(2, 4))).committed()
    assert sum(payload_of(root).values()) == len(specs()) * 16 * 24 * 4, "every shard is written once"
    loaded = shoal.jax.load(checkpointer, 1, like_on(mesh(*shape)))
    for name, spec in specs().items():
        check(loaded[name], values(jnp.float32), NamedSharding(mesh(*shape), spec))


class Holder:
    """An object with a state that JAX takes for one leaf."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_arrays_inside_of_what_jax_takes_for_a_leaf_are_loaded(checkpointer):
    """A load replaced them by empty arrays."""
    sharding = NamedSharding(mesh(8), PartitionSpec("x"))

    def state(number):
        x = put(np.full(8, number, np.float32), sharding)
        return {"held": Holder({"x": x, "n": number}), "equal": shoal.replicated({"x": x}), "x": x}

    shoal.jax.save(checkpointer, 1, state(7)).committed()
    loaded = shoal.jax.load(checkpointer, 1, state(0))
    for x in (loaded["held"].state["x"], loaded["equal"].value["x"], loaded["x"]):
        check(x, np.full(8, 7, np.float32), sharding)
    assert loaded["held"].state["n"] == 7


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint32"])
def test_arrays_of_each_process_are_per_rank_values(checkpointer, dtype):
    placed = jax.device_put(jnp.arange(4).astype(dtype), jax.devices()[3])
    state = {"alone": shoal.per_rank(placed), "own": shoal.per_rank({"x": [placed], "n": 1}), "n": 1}
    shoal.jax.save(checkpointer, 1, state).committed()
    zero = jax.device_put(jnp.zeros(4, dtype), jax.devices()[5])
    like = {"alone": shoal.per_rank(zero), "own": shoal.per_rank({"x": [zero], "n": 0}), "n": 0}
    loaded = shoal.jax.load(checkpointer, 1, like)
    for x in (loaded["alone"].value, loaded["own"].value["x"][0]):
        check(x, np.arange(4).astype(dtype), zero.sharding)
    assert loaded["own"].value["n"] == loaded["n"] == 1
    with pytest.raises(shoal.InvalidArgument, match="'own' has the dtype key<fry>"):
        shoal.jax.save(checkpointer, 2, {"own": shoal.per_rank([jax.random.key(0)])})


def test_a_save_of_the_checkpointer_itself_names_the_calls_for_jax(checkpointer):
    with pytest.raises(shoal.InvalidArgument, match="'a.x' is an array of JAX: call shoal.jax.save"):
        checkpointer.save(1, {"a": {"x": jnp.ones(3)}})


def test_every_dtype_keeps_its_bits(checkpointer):
    sharding = NamedSharding(mesh(8), PartitionSpec(None, "x"))
    state = {name: put(values(name), sharding) for name in DTYPES}
    shoal.jax.save(checkpointer, 1, state).committed()
    loaded = shoal.jax.load(checkpointer, "latest", state)
    for name in DTYPES:
        check(loaded[name], values(name), sharding)


Adam = collections.namedtuple("Adam", ["count", "mu"])


def test_pytrees_and_other_leaves(checkpointer):
    sharding = NamedSharding(mesh(8), PartitionSpec("x"))
    mu = put(values(jnp.float32), sharding)
    state = {
        "opt": (Adam(jnp.int32(5), {"w": mu}), None),
        "scalar": jnp.float32(2.5),
        "empty": jnp.zeros((0, 3)),
        "host": np.arange(4),
        "epoch": 3,
        "name": "run",
        "list": [jnp.arange(3), jnp.arange(2)],
    }
    shoal.jax.save(checkpointer, 7, state).committed()
    like = jax.tree_util.tree_map(lambda leaf: leaf, state)
    like |= {"epoch": 0, "name": "", "host": np.zeros(4, int), "scalar": jnp.float32(0)}
    loaded = shoal.jax.load(checkpointer, 7, like)
    assert jax.tree_util.tree_structure(loaded) == jax.tree_util.tree_structure(state)
    assert type(loaded["opt"][0]) is Adam and int(loaded["opt"][0].count) == 5
    check(loaded["opt"][0].mu["w"], values(jnp.float32), sharding)
    assert float(loaded["scalar"]) == 2.5 and loaded["empty"].shape == (0, 3)
    assert loaded["epoch"] == 3 and loaded["name"] == "run" and loaded["host"].tolist() == [0, 1, 2, 3]
    assert loaded["list"][0].tolist() == [0, 1, 2]
    plain = checkpointer.load(7)  # without JAX: numpy
    same_bits(plain["opt"]["0"]["mu"]["w"], values(jnp.float32))


def test_a_state_may_be_donated_after_save(checkpointer):
    sharding = NamedSharding(mesh(8), PartitionSpec("x"))
    array = put(values(jnp.float32), sharding)
    handle = shoal.jax.save(checkpointer, 1, {"a": array})
    array.delete()
    handle.committed()
    like = {"a": jax.ShapeDtypeStruct(SHAPE, jnp.float32, sharding=sharding)}
    check(shoal.jax.load(checkpointer, 1, like)["a"], values(jnp.float32), sharding)


def test_bad_input_is_rejected_by_name(checkpointer):
    with pytest.raises(shoal.InvalidArgument, match="'k' .*key_data"):
        shoal.jax.save(checkpointer, 1, {"k": jax.random.key(0)})
    with pytest.raises(shoal.InvalidArgument, match="'s' .*no data"):
        shoal.jax.save(checkpointer, 1, {"s": jax.ShapeDtypeStruct((2,), jnp.float32)})
    with pytest.raises(shoal.InvalidArgument, match="container"):
        shoal.jax.save(checkpointer, 1, jnp.zeros(3))
    with pytest.raises(shoal.InvalidArgument, match=r"two values have the name '1'"):
        shoal.jax.save(checkpointer, 1, collections.OrderedDict([("1", 0), (1, 0)]))
    with pytest.raises(shoal.InvalidArgument, match=r"two values have the name 'a\.b'"):
        shoal.jax.save(checkpointer, 1, {"a": {"b": jnp.zeros(3)}, "a.b": jnp.zeros(3)})
    with pytest.raises(shoal.InvalidArgument, match="'i' .*int4"):
        shoal.jax.save(checkpointer, 1, {"i": jnp.zeros(3, jnp.int4)})
    shoal.jax.save(checkpointer, 1, {"a": jnp.zeros(3)}).committed()
    with pytest.raises(shoal.KeyMismatch, match="'a'"):
        shoal.jax.load(checkpointer, 1, {"a": jnp.zeros(4)})
    with pytest.raises(shoal.KeyMismatch, match="'b'"):
        shoal.jax.load(checkpointer, 1, {"a": jnp.zeros(3), "b": jnp.zeros(3)})
    kept = shoal.jax.load(checkpointer, 1, {"a": jnp.ones(3), "b": jnp.ones(2)}, policies={"": "lenient"})
    assert kept["b"].tolist() == [1, 1] and kept["a"].tolist() == [0, 0, 0]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_two_processes_share_the_work_and_load_each_others_shards(root, python_environment):
    environment = dict(python_environment, XLA_FLAGS="", JAX_PLATFORMS="cpu")
    run_ranks("jax_states", "save_on_each", 2, environment, root, free_port(), timeout_s=200)
    written = payload_of(root)
    assert sum(written.values()) == len(specs()) * 16 * 24 * 4 + 3 * 8 + 5 * 4, "each shard is written once"
    largest, smallest = max(written.values()), min(written.values())
    assert len(written) == 2 and largest - smallest <= 16 * 24 * 4 + 64, "replicas are spread"
    run_ranks("jax_states", "load_on_each", 2, environment, root, free_port(), timeout_s=200)


def test_a_dtype_that_jax_would_narrow_is_rejected(tmp_path):
    with shoal.Checkpointer(tmp_path) as ck:
        ck.save(1, {"a": np.array([2**40 + 1, -5])}).committed()
        with pytest.raises(shoal.InvalidArgument, match="'a' has the dtype int64.*x64"):
            shoal.jax.load(ck, 1, {"a": jax.ShapeDtypeStruct((2,), np.int64)})


def test_an_array_without_a_device_of_its_own_stays_one(tmp_path):
    placed = jax.device_put(jnp.arange(16.0).reshape(8, 2), NamedSharding(mesh(8), PartitionSpec("x")))
    state = {"p": placed, "count": jnp.int32(3)}
    step = jax.jit(lambda s: s["p"] * s["count"])
    step(state)
    with shoal.Checkpointer(tmp_path) as ck:
        shoal.jax.save(ck, 1, state).committed()
        loaded = shoal.jax.load(ck, 1, state)
    assert loaded["count"].committed is False and loaded["p"].committed
    assert jnp.array_equal(step(loaded), step(state))


def test_arrays_saved_under_two_names_are_loaded_as_two(checkpointer):
    """numpy leaves that are one array are stored once."""
    table = np.arange(6.0).reshape(2, 3)
    state = {"in": table, "out": table, "third": {"x": table}, "w": jnp.ones(3)}
    shoal.jax.save(checkpointer, 1, state).committed()
    same = np.zeros((2, 3))
    loaded = shoal.jax.load(checkpointer, 1, {**state, "in": same, "out": same, "third": {"x": same}})
    assert loaded["out"] is same and np.array_equal(same, table)
    like = {"in": np.zeros((2, 3)), "out": np.zeros((2, 3)), "third": {"x": np.zeros((2, 3))}}
    like["w"] = jnp.zeros(3)
    loaded = shoal.jax.load(checkpointer, 1, like)
    for each in (loaded["in"], loaded["out"], loaded["third"]["x"]):
        assert np.array_equal(each, table)
    assert loaded["out"] is like["out"] and loaded["w"].tolist() == [1, 1, 1]
    only = shoal.jax.load(checkpointer, 1, {"out": np.zeros((2, 3))})
    assert np.array_equal(only["out"], table)
    with pytest.raises(shoal.KeyMismatch, match="'out'"):
        shoal.jax.load(checkpointer, 1, {"in": np.zeros((2, 3)), "out": np.zeros((3, 2))})


def test_an_alias_is_loaded_into_arrays_of_different_shardings(checkpointer):
    table = values(jnp.float32)
    shoal.jax.save(checkpointer, 1, {"in": table, "out": table}).committed()
    shardings = {
        "in": NamedSharding(mesh(8), PartitionSpec("x")),
        "out": NamedSharding(mesh(2, 4), PartitionSpec("y")),
    }
    like = {
        name: jax.ShapeDtypeStruct(SHAPE, jnp.float32, sharding=each) for name, each in shardings.items()
    }
    loaded = shoal.jax.load(checkpointer, 1, like)
    for name, sharding in shardings.items():
        check(loaded[name], table, sharding)


def test_an_array_whose_policy_is_skip_is_returned_as_it_is(checkpointer):
    shoal.jax.save(checkpointer, 1, {"a": jnp.zeros(3), "b": jnp.zeros(3), "n": 1}).committed()
    like = {"a": jnp.full(3, 7.0), "b": jnp.full(3, 7.0), "n": 7}
    loaded = shoal.jax.load(checkpointer, 1, like, policies={"a": "skip", "n": "skip"})
    assert loaded["a"] is like["a"] and loaded["b"].tolist() == [0, 0, 0] and loaded["n"] == 7


def test_a_weak_type_stays_weak(checkpointer):
    spread = jax.device_put(jnp.ones((8, 2)), NamedSharding(mesh(8), PartitionSpec("x")))
    weak = jax.device_put(jnp.broadcast_to(jnp.asarray(2.5), (8, 2)), spread.sharding)
    state = {"lr": jnp.asarray(0.5), "count": jnp.asarray(3), "weak": weak, "strong": spread}
    assert state["lr"].weak_type and weak.weak_type and not spread.weak_type
    shoal.jax.save(checkpointer, 1, state).committed()
    loaded = shoal.jax.load(checkpointer, 1, state)
    for name, value in state.items():
        assert loaded[name].weak_type == value.weak_type, name
        assert loaded[name].dtype == value.dtype and loaded[name].committed == value.committed, name
        assert loaded[name].sharding == value.sharding and np.array_equal(loaded[name], value), name
    half = jnp.ones(2, jnp.bfloat16)
    assert (half * loaded["lr"]).dtype == jnp.bfloat16
    struct = shoal.jax.load(checkpointer, 1, {"lr": jax.ShapeDtypeStruct((), jnp.float32, weak_type=True)})
    assert struct["lr"].weak_type


def test_a_wide_dict_is_loaded_in_time_that_grows_with_its_leaves(checkpointer):
    """2,000 leaves beside each other once took as many copies of the dict."""
    state = {f"leaf {i:04}": i for i in range(2000)}
    shoal.jax.save(checkpointer, 1, state).committed()
    copied = 0

    class Counted(list):
        def __iter__(self):
            nonlocal copied
            copied += len(self)
            return super().__iter__()

    tree, paths, _ = shoal.jax._nested(state)
    root = shoal.jax._Walker(0, True, False).walk(tree)
    root.children = Counted(root.children)
    found = list(shoal.jax._nodes(root, paths))
    assert [node.value for node in found] == list(range(2000)) and copied == 2000
    assert shoal.jax.load(checkpointer, 1, dict.fromkeys(state, 0)) == state
