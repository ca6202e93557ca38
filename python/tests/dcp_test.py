"""The calls of torch.distributed.checkpoint, in one process without a process group."""

import types

import numpy as np
import pytest

import shoal

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict  # noqa: E402
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict  # noqa: E402

import shoal.torch  # noqa: E402
from shoal import _dcp_export, _dcp_import  # noqa: E402


def some_state():
    return {
        "model": {"weight": torch.arange(12.0).reshape(3, 4), "bias": torch.ones(3, dtype=torch.bfloat16)},
        "optim": {"state": {0: {"exp_avg": torch.full((3,), 2.0)}}, "groups": [{"lr": 0.1, "name": "all"}]},
        "step": 7,
    }


def empty_state():
    state = some_state()
    for tensor in (*state["model"].values(), state["optim"]["state"][0]["exp_avg"]):
        tensor.zero_()
    state["optim"]["groups"][0] = {"lr": 0.0, "name": ""}
    state["step"] = 0
    return state


def assert_loaded(state):
    expected = some_state()
    assert torch.equal(state["model"]["weight"], expected["model"]["weight"])
    assert torch.equal(state["model"]["bias"], expected["model"]["bias"])
    assert torch.equal(state["optim"]["state"][0]["exp_avg"], torch.full((3,), 2.0))
    assert state["optim"]["groups"][0] == {"lr": 0.1, "name": "all"} and state["step"] == 7


@pytest.fixture
def step_7(root):
    yield root / "step-7"
    open_before = shoal.torch._by_root.pop(str(root), None)
    if open_before is not None:
        open_before.close()


def test_save_and_load_with_dcp_signatures(step_7):
    assert shoal.torch.save(some_state(), checkpoint_id=step_7).step == 7
    state = empty_state()
    shoal.torch.load(state, checkpoint_id=step_7)
    assert_loaded(state)
    state = empty_state()
    shoal.torch.load(state, checkpoint_id=step_7.parent)  # the latest
    assert_loaded(state)


@pytest.mark.parametrize("path", ["typo/step-7", "step-7", "typo", "."])
@pytest.mark.parametrize(
    "call",
    [
        lambda path: shoal.torch.load(empty_state(), checkpoint_id=path),
        lambda path: shoal.torch.StorageReader(path).read_metadata(),
        lambda path: shoal.torch.export_dcp(path, 7, path / "exported"),
    ],
)
def test_a_load_of_a_wrong_path_creates_nothing(tmp_path, call, path):
    with pytest.raises(shoal.NotFound, match="does not exist|no root of Shoal"):
        call(tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_dcp_loads_tied_weights_under_each_of_their_names(step_7):
    """They are saved once."""
    weight = torch.arange(6.0).reshape(2, 3)
    state = {"model": {"embed": weight, "head": weight, "blocks": [weight, torch.ones(1)]}}
    shoal.torch.save(state, checkpoint_id=step_7)
    names = ("embed", "head")
    for chosen in (("head",), ("embed",), names):
        into = {"model": {name: torch.zeros(2, 3) for name in chosen}}
        dcp.load(into, storage_reader=shoal.torch.StorageReader(step_7), no_dist=True)
        assert all(torch.equal(value, weight) for value in into["model"].values())
    into = {"model": {"blocks": [torch.zeros(2, 3), torch.zeros(1)]}}
    dcp.load(into, storage_reader=shoal.torch.StorageReader(step_7), no_dist=True)
    assert torch.equal(into["model"]["blocks"][0], weight)
    with shoal.torch.checkpointer(step_7.parent).open(7) as checkpoint:
        assert checkpoint.keys() == ["model.blocks.1", "model.embed"]
        assert torch.equal(checkpoint["model.head"], weight)
        assert checkpoint.read("model.head", [1, 0], [1, 2]).tolist() == [[3, 4]]


def test_a_partial_load_with_dcps_default_planner(step_7):
    shoal.torch.save(some_state(), checkpoint_id=step_7)
    state = {**empty_state(), "more": torch.ones(2)}
    with pytest.raises(shoal.KeyMismatch, match=r"missing 'more'.*allow_partial_load=True"):
        shoal.torch.load(state, checkpoint_id=step_7, planner=dcp.DefaultLoadPlanner())
    partial = dcp.DefaultLoadPlanner(allow_partial_load=True)
    shoal.torch.load(state, checkpoint_id=step_7, planner=partial)
    assert_loaded(state)
    assert state["more"].tolist() == [1, 1]


def test_async_save_may_change_its_state_at_once(step_7):
    state = some_state()
    response = shoal.torch.async_save(state, checkpoint_id=step_7)
    assert response.staging_completion.done()
    state["model"]["weight"].zero_()
    response.upload_completion.result(60)
    assert response.result(60).step == 7 and response.done() and response.exception() is None
    loaded = empty_state()
    shoal.torch.load(loaded, checkpoint_id=step_7)
    assert_loaded(loaded)


def test_arguments_that_it_does_not_take(step_7):
    with pytest.raises(shoal.InvalidArgument, match="checkpoint_id"):
        shoal.torch.save(some_state())
    with pytest.raises(shoal.InvalidArgument, match="StorageWriter"):
        shoal.torch.save(some_state(), checkpoint_id=step_7, planner=dcp.DefaultSavePlanner())


@pytest.mark.parametrize(
    "name, root_and_step",
    [
        ("run7/step-100", ("run7", 100)),
        ("run7/global_step100", ("run7", 100)),
        ("run7/iter_0000100", ("run7", 100)),
        ("run7/epoch=3", ("run7", 3)),
        ("run7/12", ("run7", 12)),
        ("run7/Checkpoint-12", ("run7", 12)),
        ("run7/model-100", ("run7/model-100", None)),  # ema-100 may be beside it
        ("run7/model_step-100", ("run7/model_step-100", None)),
        ("run7/step--100", ("run7/step--100", None)),
        ("run7/-100", ("run7/-100", None)),
        ("run-7", ("run-7", None)),
        ("run7/latest", ("run7/latest", None)),
        ("run7", ("run7", None)),  # a name, and not step 7
        ("tmpx3k9", ("tmpx3k9", None)),
    ],
)
def test_what_a_checkpoint_id_means(name, root_and_step):
    root, step = root_and_step
    assert shoal.torch._split(f"/a/{name}") == (f"/a/{root}", step)


@pytest.mark.parametrize(
    "checkpoint_id, root_and_step",
    [
        ("s3://my-bucket-2024", ("s3://my-bucket-2024", None)),  # it was step 2024 of the folder ./s3:
        ("s3://my-bucket-2024//", ("s3://my-bucket-2024", None)),
        ("s3://bucket/run/100", ("s3://bucket/run", 100)),
        ("s3://bucket-7/step-100/", ("s3://bucket-7", 100)),
        ("s3://bucket/run", ("s3://bucket/run", None)),
    ],
)
def test_no_root_is_above_its_bucket(checkpoint_id, root_and_step):
    assert shoal.torch._split(checkpoint_id) == root_and_step


@pytest.mark.parametrize("folder", ["s3://bucket/old", "s3:/bucket/old", "gs://bucket/old"])
def test_folders_of_dcp_are_local(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    ck = types.SimpleNamespace()  # not used: the folder is looked at first
    with pytest.raises(shoal.InvalidArgument, match="is no local path"):
        _dcp_import.import_folder(folder, ck, 1, False)
    with pytest.raises(shoal.InvalidArgument, match="is no local path"):
        _dcp_export.export_folder(ck, 1, folder, False, None)
    assert not list(tmp_path.iterdir())


def test_names_with_the_same_number_are_not_the_same_checkpoint(root):
    names, state = ("model-100", "ema-100"), {"weight": torch.zeros(4)}
    for value, name in enumerate(names):
        shoal.torch.save({"weight": torch.full((4,), float(value))}, checkpoint_id=root / name)
    for value, name in enumerate(names):
        shoal.torch.load(state, checkpoint_id=root / name)
        assert state["weight"].tolist() == [value] * 4
        shoal.torch.checkpointer(root / name).close()


def test_a_root_has_one_word_for_its_steps(step_7):
    shoal.torch.save(some_state(), checkpoint_id=step_7)
    for call in (
        lambda path: shoal.torch.save(some_state(), checkpoint_id=path),
        lambda path: shoal.torch.async_save(some_state(), checkpoint_id=path),
        lambda path: shoal.torch.load(empty_state(), checkpoint_id=path),
        lambda path: shoal.torch.StorageWriter(path).set_up_storage_writer(True),
        lambda path: shoal.torch.StorageReader(path).read_metadata(),
    ):
        with pytest.raises(shoal.InvalidArgument, match="has named steps of .* with the word 'step'"):
            call(step_7.parent / "epoch-7")
    for name in ("7", "STEP_7"):
        state = empty_state()
        shoal.torch.load(state, checkpoint_id=step_7.parent / name)
        assert_loaded(state)


@pytest.mark.parametrize("call", [shoal.torch.save, shoal.torch.async_save])
def test_one_rank_of_several_may_not_save_alone_unless_its_checkpointer_is_a_job_of_one(
    step_7, monkeypatch, call
):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(shoal.InvalidArgument, match="this is one of 2 ranks.*rank=0, world_size=1"):
        call(some_state(), checkpoint_id=step_7, no_dist=True)
    shoal.torch.checkpointer(step_7.parent, rank=0, world_size=1, job_id="alone")
    call(some_state(), checkpoint_id=step_7, no_dist=True)
    shoal.torch.checkpointer(step_7.parent).wait_all()
    assert shoal.torch.checkpointer(step_7.parent).latest().step == 7


def test_no_dist_is_as_nothing_in_a_process_without_a_launcher(step_7):
    assert shoal.torch.save(some_state(), checkpoint_id=step_7, no_dist=True).step == 7


def test_a_checkpointer_that_was_closed_is_opened_again(step_7):
    shoal.torch.save(some_state(), checkpoint_id=step_7)
    first = shoal.torch.checkpointer(step_7.parent)
    assert shoal.torch.checkpointer(step_7.parent) is first
    first.close()
    state = empty_state()
    shoal.torch.load(state, checkpoint_id=step_7)
    assert_loaded(state)
    assert shoal.torch.checkpointer(step_7.parent) is not first


def test_the_calls_of_dcp_use_a_checkpointer_that_the_program_has_open(step_7, tmp_path):
    step_7.parent.mkdir()
    with shoal.Checkpointer(step_7.parent) as ck:
        assert shoal.torch.save(some_state(), checkpoint_id=step_7).step == 7
        assert shoal.torch.checkpointer(step_7.parent) is ck
        state = empty_state()
        dcp.load(state, storage_reader=shoal.torch.StorageReader(step_7))
        assert_loaded(state)
        shoal.torch.export_dcp(step_7.parent, 7, tmp_path / "folder")
    assert str(step_7.parent) not in shoal.torch._by_root
    with shoal.Checkpointer(step_7.parent, read_only=True):
        assert shoal.torch.save(some_state(), checkpoint_id=step_7.parent / "step-8").step == 8


def test_a_path_without_a_number_is_a_root_whose_latest_is_loaded(tmp_path):
    for value in (1.0, 2.0):
        shoal.torch.save({"weight": torch.full((4,), value)}, checkpoint_id=tmp_path / "model")
    state = {"weight": torch.zeros(4)}
    shoal.torch.load(state, checkpoint_id=tmp_path / "model")
    assert state["weight"].tolist() == [2.0] * 4
    shoal.torch.checkpointer(tmp_path / "model").close()


def test_a_reader_that_is_used_again_reads_the_latest_checkpoint(step_7):
    reader = shoal.torch.StorageReader(step_7.parent)
    for step in (1, 2, 3):
        shoal.torch.save({"weight": torch.full((2,), float(step))}, checkpoint_id=step_7.parent / str(step))
        state = {"weight": torch.zeros(2)}
        dcp.load(state, storage_reader=reader, no_dist=True)
        assert state["weight"].tolist() == [step, step]


def test_dcp_loads_into_another_dtype_as_with_its_own_reader(step_7):
    saved = torch.arange(8.0)
    dcp.save({"weight": saved}, storage_writer=shoal.torch.StorageWriter(step_7), no_dist=True)
    state = {"weight": torch.zeros(8, dtype=torch.bfloat16)}
    dcp.load(state, storage_reader=shoal.torch.StorageReader(step_7), no_dist=True)
    assert torch.equal(state["weight"], saved.bfloat16())


def test_dcp_loads_and_exports_to_host_memory_whatever_the_default_device(step_7, tmp_path):
    saved = torch.arange(8.0)
    shoal.torch.save({"weight": saved, "pair": (saved, 1)}, checkpoint_id=step_7)
    state = {"weight": torch.zeros(8, dtype=torch.bfloat16)}
    with torch.device("meta"):
        dcp.load(state, storage_reader=shoal.torch.StorageReader(step_7), no_dist=True)
        shoal.torch.export_dcp(step_7.parent, 7, tmp_path / "dcp")
    assert torch.equal(state["weight"], saved.bfloat16())
    state = {"weight": torch.zeros(8), "pair": (torch.zeros(8), 0)}
    dcp.load(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert torch.equal(state["weight"], saved) and torch.equal(state["pair"][0], saved)


def test_dcp_rebuilds_a_state_whose_keys_are_numbers_as_from_its_own_folder(step_7, tmp_path):
    """DCP takes a number in a path for the index of a list, and failed where the numbers had a gap."""
    state = {"optim": {"state": {0: {"m": torch.ones(2)}, 3: {"m": torch.ones(3)}}, "groups": [{"lr": 1}]}}
    shoal.torch.save(state, checkpoint_id=step_7)
    dcp.save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    rebuilt = []
    for reader in (dcp.FileSystemReader(tmp_path / "dcp"), shoal.torch.StorageReader(step_7)):
        rebuilt.append({})
        planner = _EmptyStateDictLoadPlanner()
        _load_state_dict(rebuilt[-1], storage_reader=reader, planner=planner, no_dist=True)
    assert list(rebuilt[0]["optim"]["state"]) == list(rebuilt[1]["optim"]["state"]) == ["0", "3"]
    assert rebuilt[1]["optim"]["groups"] == rebuilt[0]["optim"]["groups"] == state["optim"]["groups"]


def test_dcp_saves_and_loads_through_the_storages(step_7):
    dcp.save(some_state(), storage_writer=shoal.torch.StorageWriter(step_7), no_dist=True)
    state = empty_state()
    dcp.load(state, storage_reader=shoal.torch.StorageReader(step_7), no_dist=True)
    assert_loaded(state)


def load_while_another_step_is_saved(root, state, later, monkeypatch):
    """What happens where another rank is the coordinator: it opens the latest checkpoint first. This rank's
    plan is of the next one."""
    coordinator, reader = shoal.torch.StorageReader(root), shoal.torch.StorageReader(root)
    coordinator.read_metadata()
    shoal.torch.save(later, checkpoint_id=root / "2")
    monkeypatch.setattr(reader, "prepare_global_plan", coordinator.prepare_global_plan)
    dcp.load(state, storage_reader=reader, no_dist=True)


def test_all_ranks_of_a_load_by_dcp_read_one_step(step_7, monkeypatch):
    root, state = step_7.parent, {"x": torch.zeros(3), "n": 0}
    shoal.torch.save({"x": torch.ones(3), "n": 1}, checkpoint_id=root / "1")
    load_while_another_step_is_saved(root, state, {"x": torch.full((3,), 2.0), "n": 2}, monkeypatch)
    assert state["x"].tolist() == [1, 1, 1] and state["n"] == 1


@pytest.mark.parametrize("changed", [{"x": torch.zeros(4)}, {"x": torch.zeros(3), "y": torch.zeros(1)}])
def test_a_load_by_dcp_does_not_mix_steps_that_have_other_values(step_7, monkeypatch, changed):
    root = step_7.parent
    shoal.torch.save({"x": torch.ones(3)}, checkpoint_id=root / "1")
    state = {name: torch.zeros_like(value) for name, value in changed.items()}
    with pytest.raises(dcp.api.CheckpointException, match="this one step 2, the coordinator step 1"):
        load_while_another_step_is_saved(root, state, changed, monkeypatch)


def test_dcp_saves_asynchronously(step_7):
    future = dcp.async_save(some_state(), storage_writer=shoal.torch.StorageWriter(step_7), no_dist=True)
    future.result()
    state = empty_state()
    dcp.load(state, storage_reader=shoal.torch.StorageReader(step_7), no_dist=True)
    assert_loaded(state)


def test_what_one_call_has_saved_the_others_load(step_7):
    dcp.save(some_state(), storage_writer=shoal.torch.StorageWriter(step_7), no_dist=True)
    loaded = shoal.torch.checkpointer(step_7.parent).load(7)
    assert torch.equal(loaded["model"]["weight"], some_state()["model"]["weight"])
    assert loaded["step"] == 7 and loaded["optim"]["groups"][0]["name"] == "all"
    into = empty_state()
    shoal.torch.load(into, checkpoint_id=step_7)
    assert_loaded(into)
    shoal.torch.save(some_state(), checkpoint_id=step_7.parent / "step-8")
    into = empty_state()
    dcp.load(into, storage_reader=shoal.torch.StorageReader(step_7.parent / "step-8"), no_dist=True)
    assert_loaded(into)


def test_what_dcp_takes_for_one_object_is_found_in_a_checkpoint_that_has_its_values(step_7):
    numpy_state, pair = np.random.get_state(), (torch.ones(2), {"n": 3})
    state = {"x": torch.ones(3), "rng": numpy_state, "pair": pair, "array": np.arange(3), "n": np.float32(2)}
    shoal.torch.save(state, checkpoint_id=step_7)
    into = {"x": torch.zeros(3), "rng": (), "pair": (), "array": np.zeros(3), "n": np.float32(0)}
    dcp.load(into, storage_reader=shoal.torch.StorageReader(step_7), no_dist=True)
    assert into["x"].tolist() == [1, 1, 1] and into["pair"][1] == {"n": 3}
    assert torch.equal(into["pair"][0], torch.ones(2))
    assert into["array"].tolist() == [0, 1, 2] and into["n"] == 2 and type(into["n"]) is np.float32
    np.random.set_state(into["rng"])
    assert all(np.array_equal(a, b) for a, b in zip(into["rng"], numpy_state))


def test_a_tuple_that_dcp_stores_as_one_object_is_loaded_in_place(step_7):
    state = {"pair": (torch.ones(2), {"n": 3}), "rows": [[torch.ones(1)], 2], "x": torch.ones(3)}
    dcp.save(state, storage_writer=shoal.torch.StorageWriter(step_7))
    target = {"pair": (torch.zeros(2), {"n": 0}), "rows": [[torch.zeros(1)], 0], "x": torch.zeros(3)}
    tensor, row = target["pair"][0], target["rows"][0][0]
    shoal.torch.load(target, checkpoint_id=step_7)
    assert target["pair"][0] is tensor and tensor.tolist() == [1, 1] and target["pair"][1] == {"n": 3}
    assert target["rows"][0][0] is row and row.tolist() == [1] and target["rows"][1] == 2
    assert target["x"].tolist() == [1, 1, 1]
    with pytest.raises(shoal.KeyMismatch, match="missing 'other"):
        shoal.torch.load({**target, "other": (torch.zeros(1),)}, checkpoint_id=step_7)
    for other in ((torch.zeros(3), {"n": 0}), (torch.zeros(2),), [torch.zeros(2), {"n": 0}]):
        with pytest.raises(shoal.KeyMismatch, match="'pair' is one object in the checkpoint"):
            shoal.torch.load({"pair": other}, checkpoint_id=step_7)


def test_states_of_get_state_dict(step_7):
    def make():
        torch.manual_seed(3)
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        return model, optimizer

    model, optimizer = make()
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    of_model, of_optimizer = get_state_dict(model, optimizer)
    shoal.torch.save({"model": of_model, "optim": of_optimizer}, checkpoint_id=step_7)
    fresh, fresh_optimizer = make()
    of_model, of_optimizer = get_state_dict(fresh, fresh_optimizer)
    state = {"model": of_model, "optim": of_optimizer}
    shoal.torch.load(state, checkpoint_id=step_7)
    set_state_dict(fresh, fresh_optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    for a, b in zip(model.parameters(), fresh.parameters()):
        assert torch.equal(a, b)
        assert torch.equal(optimizer.state[a]["exp_avg"], fresh_optimizer.state[b]["exp_avg"])
