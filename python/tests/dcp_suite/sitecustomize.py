"""Replaces DCP's FileSystemWriter and FileSystemReader by Shoal's storages, in every process of a test.

Python imports this module by itself when its folder is in PYTHONPATH (run.py).
"""

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import _storage_utils, filesystem

import shoal.torch


class Writer(shoal.torch.StorageWriter):
    def __init__(self, path=None, **options):
        # How DCP's writer works inside. Shoal always syncs, and never overwrites.
        ignored = {"single_file_per_rank", "sync_files", "thread_count", "per_thread_copy_ahead"}
        unknown = set(options) - ignored - {"cache_staged_state_dict", "overwrite"}
        if unknown:
            raise NotImplementedError(f"Shoal's writer has no {sorted(unknown)}")
        super().__init__(path)


class Reader(shoal.torch.StorageReader):
    def __init__(self, path=None, **options):
        if options.get("_extension_registry") is not None:
            raise NotImplementedError("Shoal's reader has no extensions")
        super().__init__(path)


for module in (dcp, filesystem, _storage_utils):
    for name, ours in (("FileSystemWriter", Writer), ("FileSystemReader", Reader)):
        if hasattr(module, name):
            setattr(module, name, ours)
