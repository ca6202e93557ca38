"""Dictionaries with numpy alone, in one process without a launcher."""

import asyncio
import gc
import math
import random
import threading

import numpy as np
import pytest

import shoal


def some_state():
    return {
        "model": {"weight": np.arange(12, dtype=np.float32).reshape(3, 4), "bias": np.zeros(3, np.float64)},
        "optim": [{"lr": 0.1, "betas": (0.9, 0.999)}, {"lr": 0.2, "nothing": None}],
        "extra": {"step": 7, "name": "grün", "blob": b"\x00\xff", "flag": True, "big": 2**80, 3: "three"},
        "scalar": np.float32(1.5),
        "pair": (np.ones(2, np.int64), "text"),
        "none": None,
        "empty": {},
        "empty list": [],
        "odd": [math.inf, -math.inf, 1 + 2j, ("a", ("b",)), bytearray(b"\x00ab"), b""],
        "bytes that change": bytearray(b"\x04\xff"),
    }


def same(a, b):
    assert type(a) is type(b), (a, b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    else:
        assert a == b


def test_a_dictionary_comes_back_as_it_was(checkpointer):
    state = some_state()
    handle = checkpointer.save(10, state)
    assert handle.committed().step == 10
    same(checkpointer.load("latest"), state)


def test_values_may_change_as_soon_as_save_returns(checkpointer):
    state = some_state()
    handle = checkpointer.save(1, state)
    state["model"]["weight"] += 100
    state["extra"]["step"] = 8
    handle.committed()
    same(checkpointer.load(1), some_state())


def test_a_load_fills_the_same_arrays(checkpointer):
    checkpointer.save(1, some_state()).committed()
    state = some_state()
    weight, model, extra = state["model"]["weight"], state["model"], state["extra"]
    pair = state["pair"][0]
    weight[:] = -1
    pair[:] = -1
    extra.update(step=0, name="", blob=None, flag=None, big=0)
    state["scalar"] = np.float32(0)
    result = checkpointer.load("latest", into=state)
    same(state, some_state())
    assert state["model"] is model and model["weight"] is weight and state["extra"] is extra
    assert state["pair"][0] is pair
    assert result.metadata.step == 1 and result.bytes > 0


def test_a_handle_polls_waits_awaits_and_calls_back(checkpointer):
    called = threading.Event()
    handle = checkpointer.save(1, {"x": np.zeros(1000)})
    handle.add_done_callback(lambda it: called.set() if it is handle else None)
    assert handle.committed(timeout=60).step == 1
    assert handle.done() and handle.exception() is None
    assert called.wait(60)

    async def save_and_wait():
        return await checkpointer.save(2, {"x": np.zeros(1000)})

    assert asyncio.run(save_and_wait()).step == 2
    assert handle.stats.bytes_staged >= 8000


def test_a_handle_outlives_the_name_of_its_checkpointer(root):
    root.mkdir()
    handles = []
    for step in (1, 2):  # a second Checkpointer of a root is refused while the first one is open
        handles.append(shoal.Checkpointer(root).save(step, {"x": np.zeros(1_000_000)}))
        gc.collect()
        assert handles[-1].committed(60).step == step
    assert [handle.committed(0).step for handle in handles] == [1, 2] and handles[0].stats.bytes_staged
    with shoal.Checkpointer(root) as opened:
        assert [info.step for info in opened.list()] == [1, 2]


def test_the_latest_and_the_list(checkpointer):
    assert checkpointer.latest() is None
    assert checkpointer.load_or_start({"x": 1}) is None
    with pytest.raises(shoal.NotFound):
        checkpointer.load("latest")
    for step in (1, 2):
        checkpointer.save(step, {"x": step}, metadata={"loss": str(step)}).committed()
    assert checkpointer.latest().step == 2
    assert checkpointer.latest().user == {"loss": "2"}
    assert [(each.step, each.state) for each in checkpointer.list()] == [(1, "committed"), (2, "committed")]
    assert checkpointer.load(1) == {"x": 1}


def test_an_open_checkpoint_reads_single_values(checkpointer):
    checkpointer.save(5, some_state()).committed()
    with checkpointer.open(5) as checkpoint:
        assert checkpoint.step == 5
        assert checkpoint["extra.step"] == 7
        assert checkpoint.about("model.weight") == ("F32", (3, 4))
        np.testing.assert_array_equal(checkpoint["model.weight"], some_state()["model"]["weight"])
        np.testing.assert_array_equal(checkpoint.read("model.weight", [1, 1], [2, 2]), [[5, 6], [9, 10]])
        assert "model.weight" in checkpoint and "model.nothing" not in checkpoint
        with pytest.raises(shoal.KeyMismatch, match="model.nothing"):
            checkpoint["model.nothing"]


def test_arrays_of_every_memory_order(checkpointer):
    base = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
    views = {
        "transposed": base.transpose(2, 0, 1),
        "sliced": base[::2, 1:, ::-1],
        "fortran": np.asfortranarray(base[0]),
        "big endian": base.astype(">i4"),
        "broadcast": np.broadcast_to(np.arange(5), (3, 5)),
        "zero dimensions": np.array(3.5),
        "no elements": np.zeros((0, 7), np.int16),
    }
    checkpointer.save(1, views).committed()
    for name, value in checkpointer.load(1).items():
        np.testing.assert_array_equal(value, views[name])
    targets = {name: np.zeros_like(value, subok=False) for name, value in views.items()}
    targets["transposed"] = np.zeros((3, 4, 5), np.int32).transpose(2, 0, 1)
    targets["big endian"] = np.zeros((3, 4, 5), ">i4")
    kept = dict(targets)
    checkpointer.load(1, into=targets)
    for name, value in targets.items():
        assert value is kept[name]
        np.testing.assert_array_equal(value, views[name])


def test_aliases_are_saved_once_and_loaded_as_aliases(checkpointer):
    tied = np.arange(1000, dtype=np.float64)
    handle = checkpointer.save(1, {"embedding": tied, "head": tied, "other": tied.copy()})
    assert handle.committed().bytes < 2.5 * tied.nbytes
    loaded = checkpointer.load(1)
    assert loaded["head"] is loaded["embedding"] and loaded["other"] is not loaded["embedding"]
    apart = {"head": np.zeros(1000), "embedding": np.zeros(1000)}
    checkpointer.load(1, into=apart)
    np.testing.assert_array_equal(apart["head"], tied)
    np.testing.assert_array_equal(apart["embedding"], tied)
    one = np.zeros(1000)
    checkpointer.load(1, into={"head": one, "embedding": one})
    np.testing.assert_array_equal(one, tied)
    head_only = {"head": np.zeros(1000)}
    checkpointer.load(1, into=head_only)
    np.testing.assert_array_equal(head_only["head"], tied)


def test_a_value_may_have_had_another_kind_when_it_was_saved(checkpointer):
    checkpointer.save(1, {"a": {"b": np.arange(3), "c": 2}, "d": np.float32(2.5), "e": 3}).committed()
    state = {"a": None, "d": 0.0, "e": None}
    checkpointer.load(1, into=state)
    np.testing.assert_array_equal(state["a"]["b"], np.arange(3))
    assert state["a"]["c"] == 2 and state["d"] == 2.5 and state["e"] == 3


class Counter:
    def __init__(self):
        self.count, self.array = 0, np.zeros(4)

    def state_dict(self):
        return {"count": self.count, "array": self.array}

    def load_state_dict(self, state):
        self.count, self.array = state["count"], state["array"]


def test_objects_with_state_dict(checkpointer):
    counter = Counter()
    counter.count, counter.array[:] = 5, 7
    checkpointer.save(1, {"counter": counter}).committed()
    fresh = Counter()
    array = fresh.array
    checkpointer.load(1, into={"counter": fresh})
    assert fresh.count == 5 and fresh.array is array and (array == 7).all()
    same(checkpointer.load(1), {"counter": {"count": 5, "array": np.full(4, 7.0)}})


def test_random_states_and_values_of_each_rank(checkpointer):
    own = {"samples": np.arange(5), "position": 17, "nested": [1, {"x": b"\x01"}]}
    state = {"rng": shoal.per_rank(shoal.RngState()), "data": shoal.per_rank(own)}
    checkpointer.save(1, state).committed()
    expected = random.random(), np.random.rand()
    fresh = {"samples": np.zeros(5, np.int64), "position": 0}
    samples = fresh["samples"]
    wrapper = shoal.per_rank(fresh)
    checkpointer.load(1, into={"rng": shoal.per_rank(shoal.RngState()), "data": wrapper})
    assert (random.random(), np.random.rand()) == expected
    assert wrapper.value is fresh and fresh["samples"] is samples
    same(fresh, own)
    same(checkpointer.load(1)["data"], own)


def test_a_per_rank_value_may_be_missing_where_that_is_allowed(checkpointer):
    checkpointer.save(1, {"x": 1}).committed()
    with pytest.raises(shoal.KeyMismatch, match="own") as caught:
        checkpointer.load(1, into={"x": 0, "own": shoal.per_rank(3)})
    assert caught.value.report.missing
    state = {"x": 0, "own": shoal.per_rank(3, required=False)}
    checkpointer.load(1, into=state)
    assert state["x"] == 1 and state["own"].value == 3


@pytest.mark.parametrize("name", ["rng", "own.rng"])
def test_a_missing_per_rank_value_is_explained_by_what_a_load_accepts(checkpointer, name):
    """The error named a policy that the next load rejected."""
    checkpointer.save(1, {"n": 5}).committed()
    parts = name.split(".")
    value = shoal.per_rank(7)
    state = {"n": 0, parts[0]: {parts[1]: value} if len(parts) > 1 else value}
    with pytest.raises(shoal.KeyMismatch) as raised:
        checkpointer.load(1, into=state)
    assert f"missing '{name}@rank0'" in str(raised.value)
    assert f"policies={{'{name}': 'lenient'}}" in str(raised.value)
    assert "per_rank(x, required=False)" in str(raised.value)
    checkpointer.load(1, into=state, policies={name: "lenient"})
    assert state["n"] == 5 and value.value == 7


def test_policies_say_which_keys_may_differ(checkpointer):
    checkpointer.save(1, {"a": np.zeros(3), "b": 1}).committed()
    state = {"a": np.ones(3), "c": 5}
    with pytest.raises(shoal.KeyMismatch, match="'c'"):
        checkpointer.load(1, into=state)
    result = checkpointer.load(1, into=state, policies={"": "lenient"})
    assert state["c"] == 5 and result.report.missing == ["c"] and result.report.unexpected == ["b"]
    with pytest.raises(shoal.KeyMismatch, match="b"):
        checkpointer.load(1, into={"a": np.ones(3)}, policies={"": "strict"})
    checkpointer.load(1, into={"a": np.ones(3), "b": 0}, policies={"": "strict"})
    with pytest.raises(shoal.KeyMismatch, match="a") as caught:
        checkpointer.load(1, into={"a": np.ones(4)})
    assert len(caught.value.report.shape_mismatches) == 1
    with pytest.raises(shoal.InvalidArgument, match="policy"):
        checkpointer.load(1, into=state, policies={"": "perhaps"})


@pytest.mark.parametrize("skipped", ["", "model", "model.w"])
def test_a_value_whose_policy_is_skip_stays_as_it_is(checkpointer, skipped):
    def state(number):
        # Loads of the first two go through a buffer; a tuple and a tied array are looked up by the structure.
        values = {"w": np.full((3, 2), float(number)).T, "big": np.full(3, number, ">f8"), "number": number}
        values |= {"own": shoal.per_rank([number]), "tuple": (np.full(2, number), number)}
        return {"model": values, "tied": values["w"], "step": number}

    def seen(values):
        plain = values["model"] | {"own": values["model"]["own"].value, "tuple": values["model"]["tuple"][0]}
        return {f"model.{name}": np.ravel(value).max() for name, value in plain.items()}

    checkpointer.save(1, state(1)).committed()
    into = state(2)
    into["tied"] = np.zeros((2, 3))
    checkpointer.load(1, into=into, policies={skipped: "skip"})
    kept = {name for name, value in seen(into).items() if value == 2}
    assert kept == {name for name in seen(into) if name.startswith(skipped)}
    assert into["step"] == (2 if skipped == "" else 1) and into["tied"].max() == (0 if skipped == "" else 1)


class Odd:
    def __eq__(self, other):
        return isinstance(other, Odd)


def test_pickle_only_where_it_is_allowed(checkpointer):
    with pytest.raises(shoal.InvalidArgument, match="allow_pickle=True"):
        checkpointer.save(1, {"x": {1, 2}})
    checkpointer.save(
        2, {"x": {1, 2}, "y": Odd(), "z": np.array(["a"], object)}, allow_pickle=True
    ).committed()
    with pytest.raises(shoal.InvalidArgument, match="allow_pickle=True"):
        checkpointer.load(2)
    loaded = checkpointer.load(2, allow_pickle=True)
    assert loaded["x"] == {1, 2} and loaded["y"] == Odd() and loaded["z"].tolist() == ["a"]


def test_declared_replicas(checkpointer):
    state = {"w": shoal.replicated(np.arange(10)), "nested": shoal.replicated({"v": np.ones(3)}, group=[0])}
    checkpointer.save(1, state).committed()
    target = {"w": shoal.replicated(np.zeros(10, np.int64)), "nested": {"v": np.zeros(3)}}
    checkpointer.load(1, into=target)
    np.testing.assert_array_equal(target["w"].value, np.arange(10))
    np.testing.assert_array_equal(target["nested"]["v"], np.ones(3))


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_saves_that_change_nothing_are_warned_of(checkpointer, caplog):
    state = {"weight": np.arange(8.0), "extra": {"name": "constant"}}
    first = checkpointer.save(90, state)
    assert first.committed() and first.unchanged_since is None
    for step in (110, 120):
        handle = checkpointer.save(step, state)
        handle.committed()
        assert handle.unchanged_since == 90
    assert [text.split(",")[0] for text in warnings_of(caplog)] == [
        "step 110 is committed",
        "step 120 is committed",
    ]
    assert "since step 90" in warnings_of(caplog)[1]
    state["weight"][3] += 1
    changed = checkpointer.save(130, state)
    changed.committed()
    assert changed.unchanged_since is None and len(warnings_of(caplog)) == 2


def test_saves_that_nobody_waits_for_are_warned_of_too(checkpointer, caplog):
    for step in (1, 2):
        checkpointer.save(step, {"weight": np.ones(8)})
    checkpointer.wait_all()
    assert len(warnings_of(caplog)) == 1 and "since step 1" in warnings_of(caplog)[0]


def test_debug_torn_names_an_array_that_changes_during_a_save(tmp_path):
    array = np.zeros(4 << 20, np.float32)
    ended = threading.Event()

    def write():
        while not ended.is_set():
            array[-1] += 1

    with shoal.Checkpointer(tmp_path, debug_torn=True) as ck:
        ck.save(1, {"model": {"weight": array}}).committed()  # nobody writes
        writer = threading.Thread(target=write)
        writer.start()
        try:
            with pytest.raises(shoal.InvalidArgument, match=r"'model\.weight' changed while it was copied"):
                for step in range(2, 50):
                    ck.save(step, {"model": {"weight": array}})
        finally:
            ended.set()
            writer.join()
        ck.save(60, {"model": {"weight": array}}).committed()
        assert ck.latest().step == 60


def test_a_leaf_and_a_container_may_have_one_dotted_name(checkpointer):
    state = {"a.b": 5, "a": {"b": {"c": 1}}, "t": np.ones(2)}
    checkpointer.save(1, state).committed()
    same(checkpointer.load(1), state)


def test_a_policy_that_allows_missing_values_still_loads_aliases(checkpointer):
    """The checkpoint has the array, under another of its names."""
    table = np.arange(6)
    checkpointer.save(1, {"in": table, "out": table}).committed()
    state = {"in": np.zeros(6, int), "out": np.zeros(6, int), "new": np.full(2, 7)}
    result = checkpointer.load(1, into=state, policies={"": "lenient"})
    assert state["out"].tolist() == state["in"].tolist() == table.tolist()
    assert state["new"].tolist() == [7, 7] and list(result.report.missing) == ["new"]


def test_values_that_are_loaded_into_the_same_memory_are_named(checkpointer, caplog):
    checkpointer.save(11, {"a": np.arange(6.0), "b": np.arange(6.0) + 10}).committed()
    tied = np.zeros(6)
    with caplog.at_level("WARNING", logger="shoal"):
        checkpointer.load(11, into={"a": tied, "b": tied})
    assert "'a' and 'b' share their memory in this state, but step 11 has a value for each" in caplog.text
    caplog.clear()
    checkpointer.save(12, {"a": tied, "b": tied}).committed()
    with caplog.at_level("WARNING", logger="shoal"):
        checkpointer.load(12, into={"a": tied, "b": tied})
    assert not caplog.records


def test_an_object_whose_values_shared_their_memory_gets_a_value_for_each(checkpointer, caplog):
    checkpointer.save(1, {"loader": Loader({"a": np.ones(3), "b": np.full(3, 2.0)})}).committed()
    shared = np.zeros(3)
    loader = Loader({"a": shared, "b": shared})
    with caplog.at_level("WARNING", logger="shoal"):
        checkpointer.load(1, into={"loader": loader})
    assert loader.state["a"].tolist() == [1, 1, 1] and loader.state["b"].tolist() == [2, 2, 2]
    assert not caplog.records


def test_aliases_of_one_array_are_loaded_into_arrays_of_their_own(checkpointer):
    table = np.arange(6)
    checkpointer.save(1, {"a": table, "b": table, "c": [table]}).committed()
    state = {"b": np.zeros(6, int), "c": [np.zeros(6, int)[::-1]]}
    kept = state["b"], state["c"][0]
    checkpointer.load(1, into=state)
    assert state["b"] is kept[0] and state["c"][0] is kept[1]
    assert state["b"].tolist() == state["c"][0].tolist() == table.tolist()
    with pytest.raises(shoal.KeyMismatch, match="'b' of 'a'"):
        checkpointer.load(1, into={"a": np.zeros(6, int), "b": np.zeros(5, int)})


class Loader:
    """A data loader whose state has other keys before it begins."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


@pytest.mark.parametrize("before", [{}, None, {"epoch": 0}, {"epoch": 0, "seen": {}}])
def test_an_object_gets_its_whole_state_also_keys_that_it_lacks(checkpointer, before):
    saved = {"epoch": 3, "seen": {"train": np.arange(4), "by": [np.ones(2), "x"]}, "none": None}
    checkpointer.save(1, {"data": Loader(saved), "n": 1}).committed()
    state = {"data": Loader(before), "n": 0}
    checkpointer.load(1, into=state)
    same(state["data"].state, saved)
    assert state["n"] == 1
