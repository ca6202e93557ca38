"""A small GPT-2 that the Trainer of transformers trains, with the checkpoints of Shoal.

    python examples/train_transformers.py --folder /tmp/run --text README.md
    torchrun --nproc-per-node 2 examples/train_transformers.py --folder /tmp/run --text README.md

Run it again after an interruption. It continues after the latest checkpoint, and its losses are bit for bit
those of a run that was not interrupted.
"""

import argparse

import torch
import transformers

from shoal.transformers import ShoalTrainer


class StopAfter(transformers.TrainerCallback):
    """Ends the process as a crash would, without a chance to save."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args, state, control, **more):
        if state.global_step == self.step:
            raise SystemExit(f"stopped after step {self.step}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", required=True, help="output_dir of the Trainer")
    parser.add_argument("--text", required=True, help="a file to learn from, byte by byte")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--save-steps", type=int, default=5)
    parser.add_argument("--stop-after", type=int, default=-1, help="end after this step, as a crash would")
    options = parser.parse_args()

    transformers.set_seed(1)
    with open(options.text, "rb") as stream:
        blocks = torch.tensor(list(stream.read()[: 64 * 200])).unfold(0, 64, 64)
    config = transformers.GPT2Config(
        vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    trainer = ShoalTrainer(
        model=transformers.GPT2LMHeadModel(config),
        args=transformers.TrainingArguments(
            output_dir=options.folder,
            max_steps=options.steps,
            save_steps=options.save_steps,
            save_total_limit=3,
            per_device_train_batch_size=4,
            logging_steps=1,
            learning_rate=1e-3,
            report_to=[],
            use_cpu=not torch.cuda.is_available(),
            dataloader_pin_memory=torch.cuda.is_available(),
        ),
        train_dataset=[{"input_ids": block, "labels": block} for block in blocks],
        callbacks=[StopAfter(options.stop_after)],
    )
    trainer.train(resume_from_checkpoint="auto")
    if trainer.is_world_process_zero():
        for entry in trainer.state.log_history:
            if "loss" in entry:
                print(f"step {entry['step']}: loss {entry['loss']!r}")


if __name__ == "__main__":
    main()
