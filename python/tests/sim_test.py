"""The simulator and the planner from Python."""

import pytest

import shoal

SMALL = {"model": "tiny", "ranks": 16, "mesh": {"dp": 16}}


def test_a_simulation_is_a_dict_with_what_was_asked_for():
    result = shoal.sim.run(**SMALL, saves=2, load=True, arrival_skew_ms=None)
    (simulation,) = result["simulations"]
    assert simulation["scenario"]["mesh"] == "dp=16,tp=1,pp=1"
    assert [save["outcome"] for save in simulation["saves"]] == ["committed"] * 2
    assert len(simulation["loads"]) == 1


def test_a_sweep_has_a_row_for_each_save_and_load():
    meshes = [{"dp": 16}, {"dp": 8, "tp": 2}]
    result = shoal.sim.run(model="tiny", ranks=16, sweep={"mode": "all", "mesh": meshes}, saves=1, load=True)
    rows = shoal.sim.rows(result)
    assert len(rows) == 2 * 3 * 2
    assert {row["scenario.mode"] for row in rows} == {"collective-free", "rank-local", "collective"}
    assert {row["scenario.mesh"] for row in rows} == {"dp=16,tp=1,pp=1", "dp=8,tp=2,pp=1"}
    assert all(row["committed_ns.max"] > 0 for row in rows if row["action"] == "save")
    assert all(row["loaded_ns.p50"] > 0 for row in rows if row["action"] == "load")


def test_a_built_in_scenario():
    result = shoal.sim.run("gpt2-16", saves=1)
    assert result["simulations"][0]["scenario"]["model"] == "gpt2"


def test_a_violated_run_is_a_result():
    result = shoal.sim.run("host-dies")
    outcomes = {save["outcome"] for each in result["simulations"] for save in each["saves"]}
    assert outcomes - {"committed"}


def test_a_plan_says_what_to_do():
    result = shoal.plan(**SMALL, seeds=2, interval=["5min", "1h"], no_baselines=True, no_sensitivity=True)
    assert result["takeaway"].startswith("Save every ")
    rows = shoal.sim.rows(result)
    assert [row["interval_ns"] for row in rows] == [300 * 10**9, 3600 * 10**9]
    assert sum(row["is_chosen"] for row in rows) == 1
    assert all(0 < row["goodput.p50"] <= 1 for row in rows)


def test_progress_is_passed_on():
    lines = []
    shoal.sim.run(**SMALL, saves=1, progress=lines.append)
    assert lines


def test_a_data_frame(monkeypatch):
    pandas = pytest.importorskip("pandas")
    result = shoal.sim.run(**SMALL, saves=2)
    table = shoal.sim.frame(result)
    assert isinstance(table, pandas.DataFrame)
    assert list(table["number"]) == [0, 1]


def test_without_pandas_the_error_says_what_to_use(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(shoal.InvalidArgument, match="shoal.sim.rows"):
        shoal.sim.frame({})


@pytest.mark.parametrize(
    "call, kind, says",
    [
        (lambda: shoal.sim.run(model="gpt9"), shoal.NotFound, "known models are"),
        (lambda: shoal.sim.run("no-such"), shoal.NotFound, "built-in scenarios are"),
        (lambda: shoal.sim.run(rank=4), shoal.InvalidArgument, "--rank"),
        (lambda: shoal.sim.run(ranks="many"), shoal.InvalidArgument, "many"),
        (lambda: shoal.sim.run(csv=True), shoal.InvalidArgument, "leave it out"),
        (lambda: shoal.sim.run(progress=3), shoal.InvalidArgument, "a function of a line"),
        (lambda: shoal.plan(ranks=0), shoal.InvalidArgument, "ranks"),
    ],
)
def test_a_wrong_argument_says_what_is_wrong(call, kind, says):
    with pytest.raises(kind, match=says):
        call()
