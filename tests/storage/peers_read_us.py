#!/usr/bin/env python3
"""The safetensors package opens every shard, and PyTorch's HuggingFaceStorageReader loads a folder of them.

peers_read_us.py WRITE_GOLDEN_ROOT: writes the golden root (tests/storage/golden_root.h) with that program,
then reads it with both packages and checks every byte. Exit status 77 (skipped) where a
package is not installed; with SHOAL_REQUIRE_PEERS set, as in CI, that fails.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

SKIPPED = 77
try:
    import safetensors
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors import safe_open
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
except ImportError as error:
    print(f"skipped: {error}: needs the Python packages torch (2.13 is known to work) and safetensors")
    sys.exit(1 if os.environ.get("SHOAL_REQUIRE_PEERS") else SKIPPED)

warnings.filterwarnings("ignore", message="torch.distributed is disabled")


def element_bytes(dtype):
    return torch.empty((), dtype=dtype).element_size()


def golden_bytes(fqn, dtype, elements):
    """golden_byte of golden_root.h, for all elements of a value."""
    width = element_bytes(dtype)
    start = sum(fqn.encode())
    index = torch.arange(elements * width)
    value = (start + 7 * (index // width) + 3 * (index % width)) % 251
    return (value % 2 if dtype == torch.bool else value).to(torch.uint8)


def bytes_of(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def check_with_safetensors(root):
    """Opens each file by itself: keys, offsets, shapes and bytes."""
    shards = sorted(root.glob("step-*/g*a*/rank-*.safetensors"))
    # The leftover of an aborted attempt is no shard.
    shards = [shard for shard in shards if shard.stat().st_size > 8]
    keys = 0
    rare = 0
    for shard in shards:
        with safe_open(shard, framework="pt") as opened:
            metadata = opened.metadata()
            assert metadata["format"] == "pt"
            info = json.loads(metadata["DCP_SHARDING_INFO"])
            shoal = json.loads(metadata["shoal"])
            assert set(info) == set(opened.keys()), shard
            for key in opened.keys():
                keys += 1
                view = opened.get_slice(key)
                if view.get_dtype() == "F8_E8M0":  # this package's PyTorch side has no such type
                    rare += 1
                    continue
                tensor = opened.get_tensor(key)
                fqn = info[key].get("logical_fqn", key)
                if key in shoal["objects"]:
                    expected = (sum(fqn.encode()) + 3 * torch.arange(tensor.numel())) % 251
                    assert torch.equal(tensor, expected.to(torch.uint8)), (shard, key)
                    continue
                shape = info[key]["global_shape"]
                count = 1
                for size in shape:
                    count *= size
                whole = golden_bytes(fqn, tensor.dtype, count).view(tensor.dtype).reshape(shape)
                box = tuple(slice(o, o + s) for o, s in zip(info[key]["saved_offsets"], tensor.shape))
                assert torch.equal(bytes_of(tensor), bytes_of(whole[box])), (shard, key)
    assert len(shards) >= 6 and keys > 60 and rare == 2, (len(shards), keys, rare)
    print(f"safetensors {safetensors.__version__} opened {len(shards)} files with {keys} tensors")


def check_with_pytorch(folder):
    """Loads one checkpoint whole through PyTorch's own reader, resharding four ranks' files into one."""
    metadata = HuggingFaceStorageReader(str(folder)).read_metadata()
    state = {}
    for fqn, value in metadata.state_dict_metadata.items():
        state[fqn] = torch.zeros(value.size, dtype=value.properties.dtype)
    dcp.load(state, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    dtypes = set()
    split = 0
    for fqn, tensor in state.items():
        split += len(metadata.state_dict_metadata[fqn].chunks) > 1
        expected = golden_bytes(fqn, tensor.dtype, tensor.numel())
        if "rng@rank" in fqn or "state" in fqn:  # objects: one run of bytes
            expected = ((sum(fqn.encode()) + 3 * torch.arange(tensor.numel())) % 251).to(torch.uint8)
        assert torch.equal(bytes_of(tensor), expected), fqn
        dtypes.add(tensor.dtype)
    assert state["replicated"].shape == (40, 20)
    assert state["empty"].shape == (0, 4) and state["step"].shape == ()
    assert len(dtypes) >= 18 and split >= 15, (dtypes, split)
    print(f"PyTorch {torch.__version__} loaded {len(state)} values of {len(dtypes)} types, "
          f"{split} from several files")


def main():
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        subprocess.run([sys.argv[1], temporary], check=True)
        check_with_safetensors(root)
        check_with_pytorch(root / "step-00000001" / "g1a1")


main()
