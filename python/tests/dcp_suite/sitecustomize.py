"""Replaces DCP's FileSystemWriter and FileSystemReader by Shoal's storages, in every process of a test. With
SHOAL_DCP_SUITE=calls also DCP's save, async_save and load by those of shoal.torch.

Python imports this module by itself when its folder is in PYTHONPATH (run.py).
"""

import os

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import _storage_utils, filesystem, state_dict_loader, state_dict_saver

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


def with_id(storage_name, call):
    """A call of shoal.torch that takes its id from a storage, and no notice of what it does not need."""

    def replaced(state_dict, **options):
        storage = options.pop(storage_name, None)
        if storage is not None and options.get("checkpoint_id") is None:
            options["checkpoint_id"] = storage._id
        for name in ("process_group", "async_stager"):
            options.pop(name, None)
        if type(options.get("planner")) is dcp.DefaultSavePlanner:
            del options["planner"]
        return call(state_dict, **options)

    return replaced


if os.environ.get("SHOAL_DCP_SUITE") == "calls":
    save = with_id("storage_writer", shoal.torch.save)
    load = with_id("storage_reader", shoal.torch.load)
    calls = {"save": save, "load": load, "async_save": with_id("storage_writer", shoal.torch.async_save)}
    for module in (dcp, state_dict_saver, state_dict_loader):
        for name in calls.keys() & vars(module).keys():
            setattr(module, name, calls[name])
    # The older names, whose storage is an argument by position.
    state_dict_saver.save_state_dict = dcp.save_state_dict = lambda state_dict, storage, **options: save(
        state_dict, storage_writer=storage, **options
    )
    state_dict_loader.load_state_dict = dcp.load_state_dict = lambda state_dict, storage, **options: load(
        state_dict, storage_reader=storage, **options
    )
