"""ShoalTrainer: a Hugging Face Trainer whose checkpoints Shoal writes and reads.

    from shoal.transformers import ShoalTrainer

    trainer = ShoalTrainer(model=model, args=args, train_dataset=dataset)
    trainer.train(resume_from_checkpoint="auto")

All checkpoints of a run are steps of one root, by default the folder `shoal` in `args.output_dir`. The
Trainer decides when to save: save_strategy and save_steps apply unchanged. A save returns when the state is
copied, and training goes on while the node of the host writes.

A TrainerCallback cannot do this. When the Trainer calls on_save, it has written its own files; and no event
lets a callback restore the random states, the scaler, or the position in the data. Therefore ShoalCheckpoints
overrides the methods of Trainer that write and read checkpoints. It is made for transformers 5.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import typing

from transformers import Trainer
from transformers.trainer_callback import ExportableState

from . import _arguments
from ._checkpointer import Checkpointer
from ._errors import InvalidArgument, NotFound
from ._wrappers import RngState, per_rank

__all__ = ["ShoalCheckpoints", "ShoalTrainer"]

_STATE_FILE = "trainer_state.json"  # Trainer.train reads this file of a checkpoint by itself
_STATE = "trainer_state"


class ShoalCheckpoints:
    """Put it before a Trainer: ``class MyTrainer(ShoalCheckpoints, SFTTrainer)``.

    A checkpoint holds the model, the optimizer, the scheduler, the gradient scaler, the random states of each
    rank, and the state of the Trainer with those of its callbacks. A run that is resumed on as many ranks
    has bit for bit the losses of one that was not interrupted, wherever this holds for the Trainer's own
    checkpoints.

    Not thread-safe: the training thread calls it.
    """

    def __init__(
        self,
        *args: typing.Any,
        shoal_root: str | os.PathLike[str] | None = None,
        shoal_options: typing.Mapping[str, typing.Any] | None = None,
        **more: typing.Any,
    ) -> None:
        """
        Args:
            args, more: those of the Trainer. save_total_limit becomes the rule keep_last of the node.
            shoal_root: the folder of the checkpoints, or s3://BUCKET/PREFIX; by default `shoal` in the
                output_dir.
            shoal_options: of shoal.Checkpointer.

        Raises:
            InvalidArgument: the Trainer uses DeepSpeed or FSDP, load_best_model_at_end is set, or shoal_root
                is no root.
        """
        super().__init__(*args, **more)
        trainer = self._trainer
        if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
            raise InvalidArgument("ShoalTrainer supports one process and DDP, not DeepSpeed or FSDP")
        if trainer.args.load_best_model_at_end:
            raise InvalidArgument(
                "load_best_model_at_end is not supported: after train, load the step that "
                "trainer.state.best_global_step names"
            )
        self._shoal_root = _arguments.root(
            shoal_root or os.path.join(trainer.args.output_dir, "shoal"), "shoal_root"
        )
        self._shoal_options = dict(shoal_options or {})
        if trainer.args.save_total_limit is not None:
            node = self._shoal_options.get("node") or {}
            self._shoal_options["node"] = {"keep_last": max(1, trainer.args.save_total_limit), **node}
        self._shoal: Checkpointer | None = None
        self._shoal_step: int | None = None  # of the checkpoint that train resumes from

    @property
    def checkpointer(self) -> Checkpointer:
        """The Checkpointer of this run. It is open until train has ended; the next use opens another one."""
        if self._shoal is None:
            if not _arguments.is_in_object_store(self._shoal_root):
                os.makedirs(self._shoal_root, exist_ok=True)
            self._shoal = Checkpointer(self._shoal_root, **self._shoal_options)
        return self._shoal

    def train(
        self,
        resume_from_checkpoint: str | bool | int | None = None,
        *args: typing.Any,
        **more: typing.Any,
    ) -> typing.Any:
        """Trains as Trainer.train does, and waits until all saves are committed.

        Args:
            resume_from_checkpoint: True is the latest checkpoint of the root. "auto" is that too, or a run
                from the beginning if the root has none. An int is a step. Any other text is a folder that
                Trainer has written.
            args, more: those of Trainer.train.

        Raises:
            NotFound: the root has no such checkpoint.
            Error: a save failed, and no later save has raised that.
        """
        parent = typing.cast(typing.Any, super())
        with tempfile.TemporaryDirectory(prefix="shoal-resume-") as folder:
            try:
                if resume_from_checkpoint is False:
                    resume_from_checkpoint = None
                if resume_from_checkpoint is True or isinstance(resume_from_checkpoint, int):
                    step = "latest" if resume_from_checkpoint is True else resume_from_checkpoint
                    resume_from_checkpoint = self._shoal_find(step, folder)
                elif resume_from_checkpoint == "auto":
                    try:
                        resume_from_checkpoint = self._shoal_find("latest", folder)
                    except NotFound:
                        resume_from_checkpoint = None
                result = parent.train(resume_from_checkpoint, *args, **more)
            except BaseException as error:
                self._shoal_end(error)
                raise
            self._shoal_end(None)
            return result

    @property
    def _trainer(self) -> typing.Any:
        return self

    def _shoal_find(self, step: typing.Any, folder: str) -> str:
        """Finds the checkpoint of a step, and writes into a folder the one file of it that train reads."""
        loaded = {_STATE: ""}
        result = self.checkpointer.load(step, into=loaded)
        self._shoal_step = result.metadata.step
        with open(os.path.join(folder, _STATE_FILE), "w", encoding="utf-8") as stream:
            stream.write(loaded[_STATE])
        return folder

    def _shoal_end(self, error: BaseException | None) -> None:
        shoal, self._shoal, self._shoal_step = self._shoal, None, None
        if shoal is not None:
            # An error of the training loop counts more than one of a save, which is then logged.
            shoal.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)

    def _shoal_optimizer(self) -> typing.Any:
        optimizer = self._trainer.optimizer
        return getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it

    # ---- the Trainer's methods that write and read checkpoints ----

    def _save_checkpoint(self, model: typing.Any, trial: typing.Any) -> None:
        trainer = self._trainer
        if trial is not None:
            raise InvalidArgument("ShoalTrainer does not save the trials of a hyperparameter search")
        if trainer.args.world_size == 1:  # else it calls a collective: total_flos is that of the last log
            trainer.store_flos()
        state: dict[str, typing.Any] = {"model": trainer.model}
        if not trainer.args.save_only_model:
            state["optimizer"] = self._shoal_optimizer()
            state["scheduler"] = trainer.lr_scheduler
            if getattr(trainer.accelerator, "scaler", None) is not None:
                state["scaler"] = trainer.accelerator.scaler
            state["rng"] = per_rank(RngState())
        if trainer.args.process_index == 0:  # the others differ in what they say of their own rank
            state[_STATE] = self._shoal_trainer_state()
        self.checkpointer.save(trainer.state.global_step, state)

    def _shoal_trainer_state(self) -> str:
        """The text of the file trainer_state.json that the Trainer would write."""
        trainer = self._trainer
        for each in [*trainer.callback_handler.callbacks, trainer.control]:
            if isinstance(each, ExportableState):
                name, known = type(each).__name__, trainer.state.stateful_callbacks
                if isinstance(known[name], list):
                    known[name].append(each.state())
                else:
                    known[name] = each.state()
        return json.dumps(dataclasses.asdict(trainer.state), indent=2, sort_keys=True) + "\n"

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: typing.Any = None) -> None:
        if self._shoal_step is None:
            typing.cast(typing.Any, super())._load_from_checkpoint(resume_from_checkpoint, model)
            return
        model = self._trainer.model if model is None else model
        self.checkpointer.load(self._shoal_step, into={"model": model})

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None or self._shoal_step is None:
            typing.cast(typing.Any, super())._load_optimizer_and_scheduler(checkpoint)
            return
        into = {"optimizer": self._shoal_optimizer(), "scheduler": self._trainer.lr_scheduler}
        self.checkpointer.load(self._shoal_step, into=into)

    def _load_scaler(self, checkpoint: str | None) -> None:
        scaler = getattr(self._trainer.accelerator, "scaler", None)
        if checkpoint is None or self._shoal_step is None:
            typing.cast(typing.Any, super())._load_scaler(checkpoint)
        elif scaler is not None:
            self.checkpointer.load(self._shoal_step, into={"scaler": scaler})

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is None or self._shoal_step is None:
            typing.cast(typing.Any, super())._load_rng_state(checkpoint)
            return
        self.checkpointer.load(self._shoal_step, into={"rng": per_rank(RngState(), required=False)})


class ShoalTrainer(ShoalCheckpoints, Trainer):
    """A Trainer of transformers with the checkpoints of Shoal: see ShoalCheckpoints."""
