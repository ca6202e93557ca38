"""ShoalCheckpointManager: the checkpoints of torchtitan's Trainer, written and read by Shoal.

    from shoal.torchtitan import ShoalCheckpointManager

    config.checkpoint = ShoalCheckpointManager.Config(enable=True, interval=500)

checkpoint.folder becomes one root of Shoal, and the checkpoints are its steps. A save copies the state and
returns, calls no collective and needs no process group; neither does a load. Values have the names that
torchtitan gives them with DCP, so that shoal.torch.export_dcp writes folders which its own manager reads.

torchtitan's own manager, which this one extends, still reads and writes other formats, with its collectives:
Hugging Face safetensors (initial_load_in_hf, last_save_in_hf) and folders of DCP (initial_load_path). If
checkpoint.folder has checkpoints of DCP and none of Shoal, a run continues from the latest one of DCP. This
module is made for torchtitan 0.3.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import typing

import torch
import tyro
from torchtitan.components.checkpointer import MODEL, CheckpointManager

from ._checkpointer import Checkpointer
from ._errors import InvalidArgument, NotFound
from .torch import _split

__all__ = ["ShoalCheckpointManager"]

logger = logging.getLogger("shoal")


class ShoalCheckpointManager(CheckpointManager):
    """A checkpoint manager of torchtitan. Not thread-safe: the Trainer calls it from the training thread.

    save raises the error of an earlier save that failed. close waits until all saves are committed, and
    raises the first failure; after an error of the training loop it does not wait.
    """

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):
        """The settings of torchtitan's manager. keep_latest_k becomes the rule keep_last of the node.
        async_mode has no effect: each save is asynchronous, but for the one of the last step."""

        max_in_flight: int = 2
        """Saves that may be undecided at a time. One more waits for the oldest."""

        allow_pickle: bool = False
        """Whether values that Shoal does not know are stored as pickles, and pickles are loaded."""

        options: typing.Annotated[typing.Dict[str, typing.Any], tyro.conf.Suppress] = dataclasses.field(
            default_factory=dict
        )
        """Further options of shoal.Checkpointer."""

    def __init__(self, config: Config, *, base_folder: str = "", **parts: typing.Any) -> None:
        """
        Args:
            config: the settings.
            base_folder: the folder that checkpoint.folder is relative to.
            parts: what the Trainer passes: dataloader, model_parts, optimizers, lr_schedulers, states and
                sd_adapter.

        Raises:
            InvalidArgument: the folder is a remote URI.
            ValueError: torchtitan's manager rejects the settings.
        """
        # The node deletes old checkpoints, and no group of ranks is needed.
        theirs = dataclasses.replace(config, keep_latest_k=0, async_mode="disabled")
        super().__init__(theirs, base_folder=base_folder, **parts)
        if not self.enable:
            return
        if "://" in self.folder:
            raise InvalidArgument(f"checkpoint.folder is {self.folder}: a folder of this machine is needed")
        self._options = {"max_in_flight": config.max_in_flight, **config.options}
        self._options["allow_pickle"] = config.allow_pickle
        if config.keep_latest_k > 0:
            node = self._options.get("node") or {}
            self._options["node"] = {"keep_last": config.keep_latest_k, **node}
        os.makedirs(self.folder, exist_ok=True)
        self._shoal: Checkpointer | None = self._open(self.folder, read_only=self.load_only or None)

    def __del__(self) -> None:
        """Does nothing. A Checkpointer that is still open is closed when the process ends."""

    def dcp_save(
        self,
        state_dict: dict[str, typing.Any],
        checkpoint_id: str,
        async_mode: typing.Any,
        enable_garbage_collection: bool = False,
        to_hf: bool = False,
    ) -> typing.Any:
        """Saves the last step, for torchtitan's manager. The checkpoint exists when this returns.

        Raises:
            Error: this save or an earlier one failed.
        """
        if to_hf:
            return super().dcp_save(state_dict, checkpoint_id, async_mode, enable_garbage_collection, to_hf)
        _, step = _split(checkpoint_id)
        assert step is not None
        self._submit(step, state_dict).committed()
        return None

    def dcp_load(
        self, state_dict: dict[str, typing.Any], checkpoint_id: str, from_hf: bool, from_quantized: bool
    ) -> None:
        """Loads initial_load_path: a root of Shoal, a step of one, a folder of DCP, or safetensors.

        Raises:
            NotFound: it is none of them.
            KeyMismatch: keys, shapes or types differ.
        """
        if from_hf or os.path.isfile(os.path.join(checkpoint_id, ".metadata")):
            super().dcp_load(state_dict, checkpoint_id, from_hf, from_quantized)
            return
        root, step = _split(checkpoint_id)
        with self._open(root, read_only=True) as other:
            self._fill(other, "latest" if step is None else step, state_dict)

    # ---- the hooks of torchtitan's BaseCheckpointManager ----

    @torch.no_grad()
    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        if not self._should_save(curr_step, last_step):
            return False
        if last_step:
            self._save_last_step(curr_step)
        else:
            self.save_future = self._submit(curr_step, self._flattened_model_states_sd())
        return True

    @torch.no_grad()
    def _load(self, step: int = -1) -> bool:
        shoal = self._shoal
        assert shoal is not None
        try:
            # All ranks find the same latest checkpoint, and all later loads name its step.
            found = shoal.load("latest" if step == -1 else step, into={}).metadata.step
        except NotFound:
            initial = self.initial_load_path
            if step != -1 or not initial or self.initial_load_in_hf or self._find_load_step() != -1:
                return bool(super()._load(step))
            self.dcp_load(self._states_to_load(self.initial_load_model_only), initial, False, False)
            return True
        self._fill(shoal, found, self._states_to_load(model_only=found == 0))
        return True

    def _wait_for_saving(self) -> None:
        assert self._shoal is not None
        self.save_future = None
        self._shoal.wait_all()

    def _maybe_wait_for_staging(self) -> None:
        """A save has copied the state when it returns."""

    def _close(self) -> None:
        super()._close()
        shoal, self._shoal = getattr(self, "_shoal", None), None
        if shoal is not None:
            shoal.__exit__(*sys.exc_info())  # the Trainer closes its manager in an except clause too

    # ---- Shoal ----

    def _open(self, root: str, read_only: bool | None) -> Checkpointer:
        return Checkpointer(root, **{**self._options, "read_only": read_only})

    def _submit(self, step: int, states: dict[str, typing.Any]) -> typing.Any:
        assert self._shoal is not None
        return self._shoal.save(step, _dictionaries(states))

    def _fill(self, shoal: Checkpointer, step: typing.Any, states: dict[str, typing.Any]) -> None:
        into = _dictionaries(states)
        shoal.load(step, into=into)
        for name, value in states.items():
            if name in into and hasattr(value, "load_state_dict"):
                value.load_state_dict(into[name])
        self.states[MODEL].load_state_dict(into)


def _dictionaries(states: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """The states with a dictionary for each object that has one. A Trainer may have no data loader."""
    return {
        name: value.state_dict() if hasattr(value, "state_dict") else value
        for name, value in states.items()
        if value is not None
    }
