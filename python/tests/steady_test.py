"""Repeated saves of the same tensors: what has changed is seen, whatever has changed."""

import gc
import weakref

import numpy as np
import pytest

import shoal


def steps(checkpointer, state, changes):
    """Saves the state after each change, and compares what a load returns with a copy made meanwhile."""
    import copy

    for step, change in enumerate([lambda state: None, *changes]):
        change(state)
        expected = copy.deepcopy(state)
        for _ in range(2):  # the second save of the same arrays is one that the next change may repeat
            checkpointer.save(step, state).committed()
            compare(checkpointer.load(step), expected)


def compare(loaded, expected):
    assert type(loaded) is type(expected), (loaded, expected)
    if isinstance(loaded, dict):
        assert list(loaded) == list(expected)
        for key in loaded:
            compare(loaded[key], expected[key])
    elif isinstance(loaded, (list, tuple)):
        assert len(loaded) == len(expected)
        for a, b in zip(loaded, expected):
            compare(a, b)
    elif hasattr(loaded, "shape"):
        assert loaded.shape == expected.shape and loaded.dtype == expected.dtype
        assert np.array_equal(np.asarray(loaded), np.asarray(expected))
    else:
        assert loaded == expected


def test_arrays_that_are_made_for_each_save_are_freed(checkpointer):
    """The last save kept them until the next one, so that there were two copies of the state."""
    for step in range(4):
        state = {"x": np.full(4, step), "same": [np.ones(2)]}
        made = weakref.ref(state["x"]), weakref.ref(state["same"][0])
        checkpointer.save(step, state).committed()
        del state
        gc.collect()
        assert [each() for each in made] == [None, None], step
        assert checkpointer.load(step)["x"].tolist() == [step] * 4


def test_arrays_of_two_saves_in_a_row_are_not_described_again(checkpointer):
    state = {"x": np.zeros(4), "scalar": 1}
    kept = []
    for step in range(3):
        state["x"] += 1
        checkpointer.save(step, state).committed()
        kept.append(checkpointer._steady)
        assert checkpointer.load(step)["x"].tolist() == [step + 1] * 4
    assert kept[0] is None and kept[1] is not None and kept[2] is kept[1]


def test_a_checkpointer_that_is_closed_keeps_no_array(root):
    root.mkdir()
    checkpointer = shoal.Checkpointer(root)
    array = np.zeros(4)
    for step in range(2):
        checkpointer.save(step, {"x": array}).committed()
    made = weakref.ref(array)
    del array
    gc.collect()
    assert made() is not None
    checkpointer.close()
    gc.collect()
    assert made() is None


def test_a_prepared_state_is_not_described_again_by_its_first_save(checkpointer):
    state = {"x": np.zeros(4)}
    checkpointer.prepare(state)
    prepared = checkpointer._steady
    checkpointer.save(1, state).committed()
    assert prepared is not None and checkpointer._steady is prepared


def test_changes_of_values(checkpointer):
    state = {"x": np.zeros(4), "n": 1, "list": [1, 2], "nested": {"name": "a", "pair": (np.ones(2), 3)}}

    def set_x(state):
        state["x"] += 1

    steps(
        checkpointer,
        state,
        [
            set_x,
            lambda state: state.update(n=2),
            lambda state: state["list"].append(3),
            lambda state: state.update(n=2.0),
            lambda state: state.update(n=True),
            lambda state: state["nested"].update(name="b"),
            lambda state: state["nested"].update(pair=(state["nested"]["pair"][0], 4)),
            lambda state: state.update(n=None),
        ],
    )


def test_changes_of_lists_of_numbers(checkpointer):
    steps(
        checkpointer,
        {"ids": [1, 2], "x": np.zeros(1)},
        [
            lambda state: None,
            lambda state: state["ids"].append(3),
            lambda state: state.update(ids=[1, 2, 3]),
            lambda state: state.update(ids=5),
            lambda state: state.update(ids=[1, 2, 3]),
            lambda state: state.update(ids=[True, 2, 3]),
            lambda state: state.update(ids=[1, 2.0, 3]),
            lambda state: state.update(ids=[1, 2, 3]),
            lambda state: state.update(ids=(1, 2, 3)),
            lambda state: state.update(ids=[]),
        ],
    )


def test_changes_deep_inside_of_many_containers(checkpointer):
    def make():
        return {i: {"step": np.float32(i), "rows": [np.full(2, i), i], "empty": {}} for i in range(4)}

    def swap(state):
        state["all"][1], state["all"][2] = state["all"][2], state["all"][1]

    state = {"all": make(), "pairs": [(1, {"x": np.zeros(2)}), (2, {"x": np.ones(2)})]}
    for each in state["all"].values():
        each["step"] = np.zeros(1)
    steps(
        checkpointer,
        state,
        [
            lambda state: state["all"][3]["rows"].__setitem__(1, 9),
            lambda state: state["all"][3]["rows"].__setitem__(0, np.ones(2)),
            lambda state: state["pairs"][1][1].update(x=np.full(2, 5)),
            lambda state: state["pairs"].reverse(),
            swap,
            lambda state: state["all"][0]["empty"].update(y=1),
            lambda state: state["all"][2].update(rows=tuple(state["all"][2]["rows"])),
            lambda state: state["all"].update(dict(reversed(state["all"].items()))),
        ],
    )


def test_changes_of_structure(checkpointer):
    state = {"x": np.zeros(4), "n": 1, "d": {"a": np.ones(2)}}
    steps(
        checkpointer,
        state,
        [
            lambda state: state.update(x=np.full(4, 5.0)),
            lambda state: state.update(x=np.zeros((2, 2))),
            lambda state: state.update(new=np.arange(3)),
            lambda state: state["d"].update(b=2),
            lambda state: state["d"].pop("a"),
            lambda state: state.update(n={"was": "a number"}),
            lambda state: state.update(n=np.arange(2)),
            lambda state: state.update(n=7),
            lambda state: state.update(d=[np.zeros(1)]),
        ],
    )


def test_changes_of_tensors_in_place(checkpointer):
    torch = pytest.importorskip("torch")
    state = {"square": torch.arange(9.0).reshape(3, 3), "x": torch.zeros(6), "n": 0}

    def new_memory(state):
        state["x"].data = torch.full((6,), 3.0)

    steps(
        checkpointer,
        state,
        [
            lambda state: state["x"].add_(1),
            lambda state: state["square"].t_(),
            new_memory,
            lambda state: state["x"].resize_(3),
            lambda state: state["x"].unsqueeze_(0),
            lambda state: state.update(x=state["square"]),
            lambda state: state.update(x=state["square"].clone()),
        ],
    )


def test_changes_of_arrays_that_a_save_has_to_copy(checkpointer):
    def every_second(size):
        return np.zeros(2 * size, np.float32)[::2]

    def unaligned(size):
        return np.frombuffer(bytearray(1 + 4 * size), np.float32, offset=1)

    makes = (every_second, unaligned, lambda size: np.zeros(size, ">f4"), lambda size: np.zeros((size, 2)).T)
    for number, make in enumerate(makes):
        array = make(3)
        state = {"x": array, "again": array}
        for step in range(3 * number, 3 * number + 3):
            array[...] = step
            checkpointer.save(step, state).committed()
        for step in range(3 * number, 3 * number + 3):
            loaded = checkpointer.load(step)
            assert (loaded["x"] == step).all() and (loaded["again"] == step).all(), (number, step)


def test_a_module_that_gets_other_parameters(checkpointer):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    for step in range(4):
        if step == 1:
            model[0].weight = torch.nn.Parameter(torch.full((3, 3), 9.0))
        if step == 2:
            model[1].weight = model[0].weight
        if step == 3:
            model.append(torch.nn.Linear(3, 1))
        expected = {name: value.clone() for name, value in model.state_dict().items()}
        checkpointer.save(step, {"model": model, "rng": shoal.per_rank(step)}).committed()
        loaded = checkpointer.load(step)
        assert loaded["rng"] == step
        assert list(loaded["model"]) == list(expected)
        assert all(torch.equal(loaded["model"][name], value) for name, value in expected.items())


def test_the_same_memory_as_another_type(checkpointer):
    torch = pytest.importorskip("torch")
    real, turned = torch.ones(4), torch.full((3,), 1 + 2j, dtype=torch.complex64)

    def as_ints(state):
        state["real"].data = state["real"].data.view(torch.int32)

    def conjugated(state):
        state["turned"].data = state["turned"].data.conj()

    def negated(state):
        state["imaginary"].data = pairs.conj().imag

    pairs = torch.tensor([1 + 2j, 3 - 4j])
    state = {"real": real, "turned": turned, "imaginary": pairs.imag.contiguous()}
    steps(checkpointer, state, [as_ints, conjugated, negated])


@pytest.mark.parametrize("has_guards", [True, False])
def test_a_change_of_form_in_the_same_memory(checkpointer, monkeypatch, has_guards):
    torch = pytest.importorskip("torch")
    if not has_guards:
        monkeypatch.setattr(shoal._steady, "_guards_of", lambda tensors: None)
    state = {"x": torch.arange(4.0).reshape(2, 2), "y": torch.ones(3)}

    def other_mode(state):
        with torch.inference_mode():  # torch's check fails here, and the slower one passes
            assert checkpointer._steady.repeat(state, False, shoal._tree.States())

    def as_ints(state):
        state["x"].data = state["x"].data.view(torch.int32)

    changes = [other_mode, as_ints, lambda state: state["x"].t_(), lambda state: state["x"].resize_(4)]
    steps(checkpointer, state, changes)


def test_a_save_that_raised_leaves_no_value_behind(checkpointer):
    state = {"n": 1, "own": shoal.per_rank({"x": 1})}
    for step in (1, 2):
        checkpointer.save(step, state).committed()
    state["n"], own = 2, state["own"]
    state["own"] = shoal.per_rank(object())
    with pytest.raises(shoal.InvalidArgument, match="which Shoal cannot save"):
        checkpointer.save(3, state)
    state["own"] = own
    checkpointer.save(3, state).committed()
    assert checkpointer.load(3)["n"] == 2


def test_an_object_whose_state_dict_raised_leaves_no_value_behind(checkpointer):
    class Loader:
        fails = False

        def state_dict(self):
            if self.fails:
                raise OSError("the data set is gone")
            return {"at": 7}

        def load_state_dict(self, state):
            pass

    loader = Loader()
    state = {"n": 1, "loader": loader}
    for step in (1, 2):
        checkpointer.save(step, state).committed()
    state["n"], loader.fails = 2, True
    with pytest.raises(OSError, match="the data set is gone"):
        checkpointer.save(3, state)
    loader.fails = False
    checkpointer.save(3, state).committed()
    assert checkpointer.load(3)["n"] == 2


def test_a_save_calls_each_state_dict_once_and_in_the_same_order_whatever_has_changed(checkpointer):
    class Part:
        def __init__(self, name, **state):
            self.name, self.state = name, state

        def state_dict(self):
            called.append(self.name)
            return dict(self.state)

        def load_state_dict(self, state):
            self.state = state

    called = []
    inner = Part("inner", x=np.zeros(2))
    outer = Part("outer", inner=inner, deeper={"part": Part("deeper", n=1)})
    own, last = Part("own", n=5), Part("last", x=np.ones(3))
    state = {"deep": [{"outer": outer}], "own": shoal.per_rank({"part": own}), "last": last}

    def with_new_arrays(part):
        part.state = {**part.state, "x": np.full(3, 7.0)}

    changes = [
        lambda: None,
        lambda: None,
        lambda: own.state.update(n=6),
        lambda: with_new_arrays(inner),
        lambda: with_new_arrays(last),
        lambda: outer.state.update(more=np.zeros(1)),
        lambda: state.update(n=1),
        lambda: state["deep"].append(2),
    ]
    for step, change in enumerate(changes):
        change()
        called.clear()
        checkpointer.save(step, state).committed()
        assert called == ["outer", "inner", "deeper", "last", "own"], step
        loaded = checkpointer.load(step)
        assert loaded["own"] == {"part": own.state}, step
        assert np.array_equal(loaded["last"]["x"], last.state["x"]), step
        assert np.array_equal(loaded["deep"][0]["outer"]["inner"]["x"], inner.state["x"]), step
