"""ShoalTrainer against the Trainer of transformers itself."""

import pathlib
import shutil

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="needs the package transformers")
pytest.importorskip("accelerate", reason="the Trainer needs the package accelerate")

import shoal  # noqa: E402
from shoal.transformers import ShoalCheckpoints, ShoalTrainer  # noqa: E402

STEPS = 12


class Losses(transformers.TrainerCallback):
    def __init__(self, stop_after=None):
        self.seen, self.stop_after = {}, stop_after

    def on_log(self, args, state, control, logs=None, **more):
        if "loss" in logs:
            self.seen[state.global_step] = (logs["loss"], logs["grad_norm"], logs["learning_rate"])

    def on_step_begin(self, args, state, control, **more):
        if state.global_step == self.stop_after:
            raise Interrupted()


class Interrupted(Exception):
    pass


def trainer_of(folder, kind=ShoalTrainer, stop_after=None, more=None, **arguments):
    transformers.set_seed(7)
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)  # with dropout, and tied embeddings
    data = [{"input_ids": torch.randint(0, 50, (8,))} for _ in range(20)]
    for each in data:
        each["labels"] = each["input_ids"]
    settings = dict(
        max_steps=STEPS, save_steps=3, per_device_train_batch_size=4, logging_steps=1, warmup_steps=4
    )
    settings.update(
        output_dir=str(folder), report_to=[], use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False
    )
    losses = Losses(stop_after)
    trainer = kind(
        model=model,
        args=transformers.TrainingArguments(**{**settings, **arguments}),
        train_dataset=data,
        callbacks=[losses],
        **(more or {}),
    )
    return trainer, losses.seen


def steps_of(folder):
    with shoal.Checkpointer(folder / "shoal", read_only=True) as ck:
        return [each.step for each in ck.list() if each.state == "committed"]


@pytest.mark.parametrize("stop_after", [4, 5, 8])  # 5 steps are an epoch
def test_a_run_that_is_resumed_has_the_losses_of_one_that_was_not_interrupted(tmp_path, stop_after):
    reference, expected = trainer_of(tmp_path / "own", kind=transformers.Trainer)
    reference.train()
    whole, losses = trainer_of(tmp_path / "whole")
    whole.train()
    assert losses == expected and len(losses) == STEPS  # saving changes nothing
    part, _ = trainer_of(tmp_path / "part", stop_after=stop_after)
    with pytest.raises(Interrupted):
        part.train(resume_from_checkpoint="auto")
    resumed, again = trainer_of(tmp_path / "part")
    resumed.train(resume_from_checkpoint=True)
    first = stop_after // 3 * 3 + 1
    assert again == {step: losses[step] for step in range(first, STEPS + 1)}
    for ours, theirs in zip(resumed.model.parameters(), whole.model.parameters()):
        assert torch.equal(ours, theirs)
    assert resumed.state.log_history[:-1] == whole.state.log_history[:-1]  # the last has times
    assert resumed.state.total_flos == whole.state.total_flos
    assert not [path for path in (tmp_path / "part").iterdir() if path.name.startswith("checkpoint-")]


def test_the_epoch_decides_and_a_step_is_chosen(tmp_path):
    whole, losses = trainer_of(tmp_path, save_strategy="epoch")
    whole.train()
    assert steps_of(tmp_path) == [5, 10, 12]
    resumed, again = trainer_of(tmp_path)
    resumed.train(resume_from_checkpoint=5)
    assert again == {step: losses[step] for step in range(6, STEPS + 1)}


def test_save_total_limit_is_the_rule_of_the_node(tmp_path):
    trainer, _ = trainer_of(tmp_path, save_steps=1, save_total_limit=2)
    trainer.train()
    assert trainer._shoal_options["node"] == {"keep_last": 2}
    assert steps_of(tmp_path)[-2:] == [11, 12]
    assert len(steps_of(tmp_path)) < STEPS


def test_callbacks_continue_with_their_states(tmp_path):
    arguments = {"eval_strategy": "steps", "eval_steps": 3, "metric_for_best_model": "loss"}
    more = {"eval_dataset": [{"input_ids": torch.arange(8), "labels": torch.arange(8)}]}
    trainer, _ = trainer_of(tmp_path, more=more, **arguments)
    trainer.add_callback(transformers.EarlyStoppingCallback(early_stopping_patience=5))
    trainer.train()
    with shoal.Checkpointer(tmp_path / "shoal", read_only=True) as ck:
        assert '"early_stopping_patience": 5' in ck.load(6)["trainer_state"]


def test_a_folder_that_the_trainer_wrote_is_resumed_too(tmp_path):
    whole, losses = trainer_of(tmp_path / "own", kind=transformers.Trainer)
    whole.train()
    resumed, again = trainer_of(tmp_path / "ours")
    resumed.train(resume_from_checkpoint=str(tmp_path / "own" / "checkpoint-6"))
    assert again == {step: losses[step] for step in range(7, STEPS + 1)}


class Breaks(transformers.TrainerCallback):
    """Puts a file in the place of the root before the save of a step."""

    def __init__(self, root, step):
        self.root, self.step = root, step

    def on_step_end(self, args, state, control, **more):
        if state.global_step == self.step:
            shutil.rmtree(self.root)
            self.root.touch()


@pytest.mark.parametrize("save_steps", [3, 12])
def test_an_error_of_a_save_reaches_the_caller(tmp_path, save_steps):
    """At the next save, or when training ends."""
    more = {"shoal_options": {"node": {"attempt_deadline_ms": 1000}}}
    trainer, _ = trainer_of(tmp_path, save_steps=save_steps, more=more)
    trainer.checkpointer  # opens it
    trainer.add_callback(Breaks(tmp_path / "shoal", save_steps))
    with pytest.raises(shoal.Error, match="no longer exists"):
        trainer.train()


def test_bad_input(tmp_path):
    trainer, _ = trainer_of(tmp_path)
    with pytest.raises(shoal.NotFound):
        trainer.train(resume_from_checkpoint=True)
    with pytest.raises(shoal.NotFound):
        trainer.train(resume_from_checkpoint=4)
    with pytest.raises(shoal.InvalidArgument, match="load_best_model_at_end"):
        arguments = {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 3}
        trainer_of(tmp_path, more={"eval_dataset": []}, **arguments)


def test_a_root_in_an_object_store_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened = []
    monkeypatch.setattr("shoal.transformers.Checkpointer", lambda root, **options: opened.append(root))
    trainer, _ = trainer_of(tmp_path / "out", more={"shoal_root": "s3://bucket/runs/7"})
    assert trainer.checkpointer is None and opened == ["s3://bucket/runs/7"]
    assert not (tmp_path / "s3:").exists()
    with pytest.raises(shoal.InvalidArgument, match="shoal_root .* as a text, not as a Path"):
        trainer_of(tmp_path / "out", more={"shoal_root": pathlib.Path("s3://bucket/runs/7")})


def test_it_goes_before_other_trainers(tmp_path):
    class Mine(transformers.Trainer):
        pass

    class Both(ShoalCheckpoints, Mine):
        pass

    trainer, _ = trainer_of(tmp_path, kind=Both, more={"shoal_root": tmp_path / "shoal"})
    trainer.train()
    assert steps_of(tmp_path) == [3, 6, 9, 12]


def test_two_ranks_under_ddp_are_resumed(tmp_path, run_example):
    def run(folder, *more):
        arguments = ["--folder", folder, "--text", __file__, "--steps", "8", "--save-steps", "3", *more]
        return run_example("train_transformers.py", 2, *arguments)

    ran, whole = run(tmp_path / "whole")
    assert ran.returncode == 0 and len(whole) == 8, ran.stderr
    stopped, _ = run(tmp_path / "part", "--stop-after", "7")
    assert stopped.returncode != 0 and "stopped after step 7" in stopped.stderr
    again, resumed = run(tmp_path / "part")
    assert again.returncode == 0 and resumed == whole, again.stderr
    assert steps_of(tmp_path / "part") == steps_of(tmp_path / "whole")
