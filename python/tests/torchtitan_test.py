"""ShoalCheckpointManager under torchtitan's own Trainer, and against torchtitan's own manager.

The example trains with FSDP on the CPU. torchtitan's Trainer imports triton and the package datasets; its
manager and optimizers need neither.
"""

import importlib.util
import shutil

import pytest

torch = pytest.importorskip("torch")
torchtitan = pytest.importorskip("torchtitan", reason="needs the package torchtitan")
pytest.importorskip("torchtitan.components.checkpointer", reason="needs torchtitan 0.3")

import torch.distributed.checkpoint as dcp  # noqa: E402
from torchtitan.components.checkpointer import CheckpointManager  # noqa: E402
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw  # noqa: E402

import shoal  # noqa: E402
import shoal.torch  # noqa: E402
from shoal.torchtitan import ShoalCheckpointManager  # noqa: E402

EXAMPLE = "train_torchtitan.py"
NEEDED = ("triton", "datasets", "torchdata")


class TrainState:
    """What torchtitan's Trainer is to its manager."""

    def __init__(self):
        self.step = self.ntokens_seen = 0

    def state_dict(self):
        return {"step": self.step, "ntokens_seen": self.ntokens_seen}

    def load_state_dict(self, state):
        self.step, self.ntokens_seen = state["step"], state["ntokens_seen"]


class Run:
    """A model with torchtitan's optimizers, schedulers and a manager."""

    def __init__(self, base, kind=ShoalCheckpointManager, seed=1, **settings):
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
        self.optimizers = default_adamw(lr=0.1).build(model_parts=[self.model])
        self.schedulers = LRSchedulersContainer.Config(warmup_steps=2).build(
            optimizers=self.optimizers, training_steps=20
        )
        self.state = TrainState()
        defaults = dict(enable=True, interval=2, keep_latest_k=0, last_save_model_only=False)
        self.manager = kind.Config(**{**defaults, **settings}).build(
            dataloader=None,
            model_parts=[self.model],
            optimizers=self.optimizers,
            lr_schedulers=self.schedulers,
            states={"train_state": self.state},
            sd_adapter=None,
            base_folder=str(base),
        )
        self.root = base / "checkpoint"

    def train(self, until, last_step=False):
        while self.state.step < until:
            self.state.step += 1
            self.state.ntokens_seen += 8
            self.optimizers.zero_grad()
            x = torch.arange(8.0).reshape(2, 4) / self.state.step
            self.model(x).square().sum().backward()
            self.manager.maybe_wait_for_staging()
            self.optimizers.step()
            self.schedulers.step()
            self.manager.save(self.state.step, last_step=last_step and self.state.step == until)
        return self

    def whole(self):
        return {
            "model": {name: value.clone() for name, value in self.model.state_dict().items()},
            "optimizer": {
                name: value.clone() if isinstance(value, torch.Tensor) else value
                for name, value in self.optimizers.state_dict().items()
            },
            "lr_scheduler": self.schedulers.state_dict(),
            "train_state": self.state.state_dict(),
        }


def assert_equal(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_run_that_is_resumed_is_one_that_was_not_interrupted(tmp_path):
    whole = Run(tmp_path / "whole").train(9)
    whole.manager.close()
    part = Run(tmp_path / "part").train(5)
    part.manager.close()
    resumed = Run(tmp_path / "part", seed=2)
    assert resumed.manager.load()
    assert resumed.state.step == 4
    resumed.train(9).manager.close()
    assert_equal(resumed.whole(), whole.whole())


def test_a_save_has_copied_the_state_when_it_returns(tmp_path):
    run = Run(tmp_path).train(4)
    at_4 = run.whole()
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.zero_()
    run.manager.maybe_wait_for_saving()
    assert run.manager.save_future is None
    assert run.manager.load(4)
    assert_equal(run.whole(), at_4)
    run.manager.close()
    run.manager.close()


def test_a_new_folder_is_a_new_run_and_a_missing_step_an_error(tmp_path):
    run = Run(tmp_path)
    assert not run.manager.load()
    with pytest.raises(FileNotFoundError, match="7"):
        run.manager.load(7)
    run.manager.close()
    disabled = Run(tmp_path / "disabled", enable=False)
    assert not disabled.manager.load() and not disabled.manager.save(2)
    disabled.manager.close()
    assert not (tmp_path / "disabled").exists()


def test_values_have_the_names_that_torchtitan_gives_them_with_dcp(tmp_path):
    theirs = Run(tmp_path / "theirs", kind=CheckpointManager).train(2)
    ours = Run(tmp_path / "ours").train(2)
    ours.manager.close()
    metadata = dcp.FileSystemReader(theirs.root / "step-2").read_metadata()
    with shoal.Checkpointer(ours.root, read_only=True) as ck, ck.open(2) as checkpoint:
        assert set(checkpoint.keys()) == set(metadata.state_dict_metadata) - {"dataloader"}


def test_a_folder_of_dcp_is_continued(tmp_path):
    theirs = Run(tmp_path, kind=CheckpointManager).train(4)
    ours = Run(tmp_path, seed=2)
    assert ours.manager.load() and ours.state.step == 4
    assert_equal(ours.whole(), theirs.whole())
    ours.train(6).manager.close()
    again = Run(tmp_path, seed=3)
    assert again.manager.load() and again.state.step == 6
    assert_equal(again.whole(), ours.whole())
    again.manager.close()


def test_torchtitan_reads_what_is_exported(tmp_path):
    ours = Run(tmp_path).train(4)
    ours.manager.close()
    shoal.torch.export_dcp(ours.root, 4, tmp_path / "dcp" / "checkpoint" / "step-4")
    theirs = Run(tmp_path / "dcp", kind=CheckpointManager, seed=2, exclude_from_loading=["dataloader"])
    assert theirs.manager.load()
    assert_equal(theirs.whole(), ours.whole())


@pytest.mark.parametrize("kind", [ShoalCheckpointManager, CheckpointManager])
def test_an_initial_load_takes_the_model_alone(tmp_path, kind):
    first = Run(tmp_path / "first", kind=kind).train(4)
    first.manager.close()
    second = Run(tmp_path / "second", seed=2, initial_load_path=str(first.root / "step-4"))
    assert second.manager.load()
    assert second.state.step == 0
    assert_equal(second.whole()["model"], first.whole()["model"])
    second.train(2).manager.close()
    third = Run(tmp_path / "second", seed=3, initial_load_path=str(first.root / "step-4"))
    assert third.manager.load() and third.state.step == 2  # what the run itself has saved comes first
    third.manager.close()


def test_excluded_states_keep_their_values(tmp_path):
    Run(tmp_path).train(4).manager.close()
    run = Run(tmp_path, exclude_from_loading=["train_state"])
    assert run.manager.load()
    assert run.state.step == 0 and run.schedulers.state_dict() == {"last_epoch": 4}
    run.manager.close()


def test_the_last_step_exists_when_save_returns(tmp_path):
    run = Run(tmp_path, last_save_model_only=True, export_dtype="bfloat16").train(3, last_step=True)
    with shoal.Checkpointer(run.root, read_only=True) as ck:
        loaded = ck.load(3)
    assert set(loaded) == set(run.model.state_dict())
    assert {value.dtype for value in loaded.values()} == {torch.bfloat16}
    run.manager.close()


def test_a_run_that_only_loads_saves_nothing(tmp_path):
    Run(tmp_path).train(2).manager.close()
    run = Run(tmp_path, load_only=True)
    assert run.manager.load() and run.state.step == 2
    run.train(6).manager.close()
    with shoal.Checkpointer(run.root, read_only=True) as ck:
        assert [each.step for each in ck.list()] == [2]


def test_keep_latest_k_is_the_rule_of_the_node(tmp_path):
    run = Run(tmp_path, interval=1, keep_latest_k=2).train(8)
    run.manager.close()
    with shoal.Checkpointer(run.root, read_only=True) as ck:
        steps = [each.step for each in ck.list() if each.state == "committed"]
    assert steps[-2:] == [7, 8] and len(steps) < 8


def test_an_error_of_a_save_reaches_the_caller(tmp_path):
    run = Run(tmp_path, options={"node": {"attempt_deadline_ms": 1000}})
    shutil.rmtree(run.root)
    run.root.touch()
    with pytest.raises(shoal.Error, match="no longer exists"):
        run.train(2).manager.close()


def test_a_remote_folder_is_rejected(tmp_path):
    with pytest.raises(shoal.InvalidArgument, match="gs://bucket"):
        Run(tmp_path, folder="gs://bucket/run")


# ---- the Trainer of torchtitan ----


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NEEDED),
    reason=f"torchtitan's Trainer needs the packages {', '.join(NEEDED)}",
)
def test_a_trainer_with_fsdp_is_resumed(tmp_path, run_example):
    ran, whole = run_example(EXAMPLE, 2, "--folder", tmp_path / "whole")
    assert ran.returncode == 0 and len(whole) == 8, ran.stderr
    stopped, _ = run_example(EXAMPLE, 2, "--folder", tmp_path / "part", "--stop-after", "5")
    assert stopped.returncode != 0 and "stopped after step 5" in stopped.stderr
    again, resumed = run_example(EXAMPLE, 2, "--folder", tmp_path / "part")
    assert again.returncode == 0 and resumed == whole[3:], again.stderr
    alone, losses = run_example(
        EXAMPLE, 1, "--folder", tmp_path / "part", "--steps", "10", "--exclude", "dataloader"
    )
    assert alone.returncode == 0 and [line.split(":")[0] for line in losses] == ["step 9", "step 10"]
