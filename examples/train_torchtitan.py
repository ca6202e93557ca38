"""A small Llama 3 that torchtitan trains with FSDP, with the checkpoints of Shoal.

    torchrun --nproc-per-node 2 examples/train_torchtitan.py --folder /tmp/run

Run it again after an interruption: it continues after the latest checkpoint. torchtitan is made for GPUs. On
a machine without one this program trains on the CPU: use_cpu replaces what torchtitan asks of a GPU.
"""

import argparse
import dataclasses

import torch
from torch.distributed.fsdp import FSDPModule
import torchtitan.tools.utils as titan_utils


def use_cpu() -> None:
    """Must run before the other modules of torchtitan are imported: they copy these names."""
    titan_utils.device_type, titan_utils.device_module = "cpu", torch.cpu
    import torchtitan.components.metrics as metrics
    import torchtitan.distributed.utils as distributed

    class NoDeviceMemory:
        device_name = "CPU"

        def get_peak_stats(self) -> metrics.DeviceMemStats:
            return metrics.DeviceMemStats(0.0, 0.0, 0.0, 0.0, 0, 0)

        def reset_peak_stats(self) -> None:
            pass

    metrics.build_device_memory_monitor = NoDeviceMemory
    distributed.set_pg_timeouts = lambda **_: None  # its barrier needs the number of a device


if not torch.cuda.is_available():
    use_cpu()

from torchtitan.components.dataloader import ParallelAwareDataloader  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.common.config_utils import decoder_vocab_size  # noqa: E402
from torchtitan.models.llama3 import model_registry  # noqa: E402
from torchtitan.models.llama3.config_registry import llama3_debugmodel  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

from shoal.torchtitan import ShoalCheckpointManager  # noqa: E402


class Numbers(torch.utils.data.IterableDataset):
    """Sequences that are drawn from a generator whose position is part of the checkpoint."""

    def __init__(self, rank: int, length: int) -> None:
        self.generator = torch.Generator().manual_seed(rank)
        self.length = length

    def __iter__(self):
        while True:
            tokens = torch.randint(0, 64, (self.length + 1,), generator=self.generator)
            yield {"input": tokens[:-1], "positions": torch.arange(self.length)}, tokens[1:]

    def state_dict(self):
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state):
        self.generator.set_state(state["generator"])


class NumbersLoader(ParallelAwareDataloader):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(ParallelAwareDataloader.Config):
        pass

    def __init__(self, config, *, dp_world_size, dp_rank, seq_len, local_batch_size, **more):
        super().__init__(Numbers(dp_rank, seq_len), dp_rank, dp_world_size, batch_size=local_batch_size)


class NoTokenizer(BaseTokenizer):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, **more):
        super().__init__()

    def encode(self, *args, **more):
        return []

    def decode(self, *args, **more):
        return ""

    def get_vocab_size(self):
        return 64


class Losses(Trainer):
    """A Trainer that prints each loss with all its bits, and that can end as a crash would."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        stop_after: int = -1

    def __init__(self, config):
        super().__init__(config)
        for module in self.model_parts[0].modules():
            if isinstance(module, FSDPModule) and self.device.type == "cpu":
                module.set_force_sum_reduction_for_comms(True)  # Gloo can reduce in no other way

    def train_step(self, data_iterator):
        if self.step == self.config.stop_after + 1:
            raise SystemExit(f"stopped after step {self.config.stop_after}")
        log = self.metrics_processor.log

        def log_and_print(step, average, *args, **more):
            if torch.distributed.get_rank() == 0:
                print(f"step {step}: loss {float(average)!r}", flush=True)
            log(step, average, *args, **more)

        self.metrics_processor.log = log_and_print
        try:
            super().train_step(data_iterator)
        finally:
            self.metrics_processor.log = log


def config_of(options: argparse.Namespace) -> Trainer.Config:
    base = llama3_debugmodel()
    spec = model_registry("debugmodel")
    for layer in spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()  # FlexAttention needs a GPU
    fields = {each.name: getattr(base, each.name) for each in dataclasses.fields(base)}
    config = Losses.Config(**{**fields, "model_spec": spec, "stop_after": options.stop_after})
    config.dump_folder = options.folder
    config.loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec))
    config.dataloader, config.tokenizer = NumbersLoader.Config(), NoTokenizer.Config()
    config.training.disable_cuda_graphs = True
    config.training.mixed_precision_param = "float32"
    config.training.seq_len, config.training.local_batch_size = 32, 2
    config.training.steps = options.steps
    config.parallelism.spmd_backend = "partial_dtensor"  # spmd_types needs parts that this model lacks
    config.debug.seed = 1
    config.validator.enable = False
    config.checkpoint = ShoalCheckpointManager.Config(
        enable=True, interval=options.interval, last_save_model_only=False, keep_latest_k=3
    )
    config.checkpoint.exclude_from_loading = options.exclude
    return config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", required=True, help="dump_folder of the Trainer")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--interval", type=int, default=3, help="save every so many steps")
    parser.add_argument("--stop-after", type=int, default=-1, help="end after this step, as a crash would")
    parser.add_argument(
        "--exclude", nargs="*", default=[], help="what is not loaded: dataloader, on another number of ranks"
    )
    trainer = config_of(parser.parse_args()).build()
    try:
        trainer.train()
    finally:
        trainer.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
