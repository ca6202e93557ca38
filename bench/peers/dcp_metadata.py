"""The .metadata that PyTorch's DCP writes for the job of bench/storage/manifest_bench, to compare its size.

    dcp_metadata.py [TP PP DP]     default: 8 16 128

Makes the Metadata object that DCP's default planner would, the chunks of each tensor and where each one lies,
and pickles it as its FileSystemWriter does. The default takes some minutes and 10 GiB.
"""

import io
import pickle
import sys

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

LAYERS, HIDDEN, KEY_VALUE, FEED_FORWARD, VOCABULARY = 126, 16384, 1024, 53248, 128256
ROWS, COLUMNS, WHOLE = range(3)


def parameters(pp):
    each = (LAYERS + pp - 1) // pp
    for layer in range(LAYERS):
        name, stage = f"layers.{layer}.", layer // each
        for part, shape, cut in (
            ("attention.wq", (HIDDEN, HIDDEN), ROWS),
            ("attention.wk", (KEY_VALUE, HIDDEN), ROWS),
            ("attention.wv", (KEY_VALUE, HIDDEN), ROWS),
            ("attention.wo", (HIDDEN, HIDDEN), COLUMNS),
            ("feed_forward.w1", (FEED_FORWARD, HIDDEN), ROWS),
            ("feed_forward.w2", (HIDDEN, FEED_FORWARD), COLUMNS),
            ("feed_forward.w3", (FEED_FORWARD, HIDDEN), ROWS),
            ("attention_norm", (HIDDEN,), WHOLE),
            ("ffn_norm", (HIDDEN,), WHOLE),
        ):
            yield name + part + ".weight", shape, cut, stage
    yield "tok_embeddings.weight", (VOCABULARY, HIDDEN), ROWS, 0
    yield "norm.weight", (HIDDEN,), WHOLE, pp - 1
    yield "output.weight", (VOCABULARY, HIDDEN), ROWS, pp - 1


def spans(begin, end, parts):
    """torch.chunk of [begin, end)."""
    step = -(-(end - begin) // parts)
    for i in range(parts):
        first = min(begin + i * step, end)
        yield first, min(first + step, end)


def chunks(shape, cut, tp, dp):
    """(offsets, sizes, dp coordinate, tp coordinate) of every shard with elements."""
    for t in range(tp if cut != WHOLE else 1):
        offsets, ends = [0] * len(shape), list(shape)
        if cut == ROWS:
            offsets[0], ends[0] = list(spans(0, shape[0], tp))[t]
        elif cut == COLUMNS:
            offsets[1], ends[1] = list(spans(0, shape[1], tp))[t]
        for d, (first, last) in enumerate(spans(offsets[0], ends[0], dp)):
            if last > first:
                yield (
                    torch.Size([first] + offsets[1:]),
                    torch.Size([last - first] + [e - o for o, e in zip(offsets[1:], ends[1:])]),
                    d,
                    t,
                )


def main():
    tp, pp, dp = map(int, sys.argv[1:4]) if len(sys.argv) == 4 else (8, 16, 128)
    values, where, tensors = {}, {}, 0
    for name, shape, cut, stage in parameters(pp):
        held = list(chunks(shape, cut, tp, dp))
        for prefix, dtype in (
            ("model.", torch.bfloat16),
            ("optimizer.exp_avg.", torch.float32),
            ("optimizer.exp_avg_sq.", torch.float32),
        ):
            fqn = prefix + name
            tensors += 1
            values[fqn] = TensorStorageMetadata(
                TensorProperties(dtype=dtype),
                torch.Size(shape),
                [ChunkStorageMetadata(offsets, sizes) for offsets, sizes, _, _ in held],
            )
            for i, (offsets, sizes, d, t) in enumerate(held):
                rank = stage * dp * tp + d * tp + t
                length = sizes.numel() * dtype.itemsize
                place = _StorageInfo(f"__{rank}_0.distcp", tensors * length, length)
                where[MetadataIndex(fqn, offsets, i)] = place
    out = io.BytesIO()
    pickle.dump(Metadata(values, None, where), out)
    print(f"{tp * pp * dp} ranks, {tensors} tensors: DCP's .metadata has {out.tell()} bytes")


if __name__ == "__main__":
    main()
