"""torch tensors and DTensors as Arrays. Imported only where torch is.

A DTensor is described by its device_mesh and placements, which every rank knows: no collective is called, and
no process group is used.
"""

from __future__ import annotations

import contextlib
import typing
import weakref

import torch

from . import _arrays, _client
from ._arrays import _TORCH_NAMES, Array, Placements
from ._errors import InvalidArgument
from ._wrappers import Boxes

_DTYPE_NAMES: dict[torch.dtype, str] = {
    getattr(torch, name): code for name, code in _TORCH_NAMES.items() if hasattr(torch, name)
}
_PLAIN_TYPES: set[type] = {torch.Tensor, torch.nn.Parameter}
if hasattr(torch.nn, "Buffer"):
    _PLAIN_TYPES.add(torch.nn.Buffer)

try:
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard
except ImportError:  # a torch without distributed
    DTensor = None  # type: ignore[assignment, misc]

try:
    from torch.distributed._shard.sharded_tensor import ShardedTensor
except ImportError:
    ShardedTensor = None  # type: ignore[assignment, misc]

_increment_version = torch.autograd.graph.increment_version
_meshes: "weakref.WeakKeyDictionary[typing.Any, typing.Any]" = weakref.WeakKeyDictionary()


def dtype_name(dtype: torch.dtype, name: str) -> str:
    found = _DTYPE_NAMES.get(dtype)
    if found is None:
        help = "save tensor.view(torch.uint8), and view it as this dtype again after a load"
        if dtype.is_complex:
            part = {16: "float64", 4: "float16"}.get(dtype.itemsize, "real")
            help = f"save torch.view_as_real(tensor), a {part} tensor; view_as_complex gives it back"
        raise InvalidArgument(
            f"'{name}' has the dtype {dtype}, which no checkpoint can hold, because safetensors has no such "
            f"type: {help}"
        )
    return found


def mesh_of(device_mesh: typing.Any) -> typing.Any:
    """The Mesh of a DeviceMesh, kept as long as the DeviceMesh lives."""
    known = _meshes.get(device_mesh)
    if known is None:
        ranks = device_mesh.mesh
        known = _client.Mesh.from_ranks(list(ranks.shape), ranks.flatten().tolist())
        _meshes[device_mesh] = known
    return known


def placements_of(placements: typing.Iterable[typing.Any], name: str) -> Placements:
    out: Placements = []
    for each in placements:
        # In some versions of torch _StridedShard is a Shard.
        if isinstance(each, _StridedShard):
            out.append((2, each.dim, each.split_factor))
        elif isinstance(each, Shard):
            out.append((1, each.dim, 0))
        elif isinstance(each, Replicate):
            out.append((0, 0, 0))
        else:
            raise InvalidArgument(
                f"'{name}' has the placement {each}: its value is spread over ranks as terms of a sum. Call "
                "redistribute to Replicate or Shard before saving"
            )
    return out


def _check_storable(tensor: torch.Tensor, name: str) -> None:
    def reject(what: str, help: str) -> typing.NoReturn:
        raise InvalidArgument(f"'{name}' is {what}: {help}")

    if tensor.is_meta:
        reject("on the meta device", "it has no data. Materialise it with to_empty before you save or load")
    if tensor.is_nested:
        reject("a nested tensor", "save its values and its offsets as two tensors")
    if tensor.layout is not torch.strided:
        reject(f"a tensor of layout {tensor.layout}", "save its indices and its values as tensors")
    if tensor.is_quantized:
        reject("a quantised tensor", "save int_repr(), scale and zero point")
    if torch.nn.parameter.is_lazy(tensor):
        reject("a lazy parameter", "it has no shape yet. Run the module once before you save or load")
    if type(tensor) not in _PLAIN_TYPES:
        reject(
            f"a {type(tensor).__name__}", "Shoal does not know this class of tensor. Save the tensors inside"
        )
    if tensor.numel() and _bytes_needed(tensor) > tensor.untyped_storage().nbytes():
        reject(
            "a tensor whose memory was freed, in part or as a whole",
            "FSDP does that with whole parameters between their uses. Save and load the sharded ones, which "
            "model.state_dict() has",
        )


def _bytes_needed(tensor: torch.Tensor) -> int:
    """How many bytes the storage of a tensor with elements must have."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return int(tensor.storage_offset() + last + 1) * tensor.itemsize


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as contiguous host memory: the tensor's own memory if that is so already."""
    tensor = tensor.detach()
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor.cpu().contiguous()


def _to_fill(tensor: torch.Tensor, name: str) -> tuple[torch.Tensor, typing.Callable[[], None] | None]:
    """Contiguous host memory for a load, and the copy from there to the tensor if it is not the tensor's."""
    target = tensor.detach()
    note_change(target)
    if (
        target.device.type == "cpu"
        and target.is_contiguous()
        and not target.is_conj()
        and not target.is_neg()
    ):
        return target, None
    if any(size > 1 and stride == 0 for size, stride in zip(target.shape, target.stride())):
        raise InvalidArgument(f"'{name}' has elements that share memory: a load cannot fill it. Call clone()")
    buffer = torch.empty(target.shape, dtype=target.dtype, device="cpu")

    def finish() -> None:
        with torch.no_grad():
            target.copy_(buffer)

    return buffer, finish


def note_change(tensor: torch.Tensor) -> None:
    """Raises the version of a tensor that Shoal is to fill. Autograd then rejects a backward pass that needs
    what the tensor held before, as after every other change in place."""
    if not tensor.is_inference():
        _increment_version(tensor)


def describe(tensor: torch.Tensor, name: str, rank: int, writable: bool) -> Array | None:
    if DTensor is not None and isinstance(tensor, DTensor):
        return _describe_dtensor(tensor, name, rank, writable)
    if ShardedTensor is not None and isinstance(tensor, ShardedTensor):
        parts = [(tuple(each.metadata.shard_offsets), each.tensor) for each in tensor.local_shards()]
        return _arrays.describe_boxes(Boxes(tuple(tensor.size()), parts), name, rank, writable)
    _check_storable(tensor, name)
    host, finish = _to_fill(tensor, name) if writable else (_on_host(tensor), None)
    return Array(
        dtype_name(tensor.dtype, name),
        tuple(tensor.shape),
        host.data_ptr(),
        host,
        _alias_key(tensor),
        finish=finish,
    )


def _alias_key(tensor: torch.Tensor) -> tuple[typing.Any, ...] | None:
    if tensor.numel() == 0:
        return None
    return (
        tensor.data_ptr(),
        tensor.device,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
    )


def _empty_key(local: torch.Tensor) -> tuple[typing.Any, ...]:
    """The alias key of a DTensor of which this rank has no element. It must be an alias here if it is one on
    the ranks that have elements: a view of the same storage, which FSDP pads to the size of other ranks."""
    return ("empty", local.untyped_storage()._cdata, local.storage_offset())


def _describe_dtensor(tensor: typing.Any, name: str, rank: int, writable: bool) -> Array | None:
    mesh = mesh_of(tensor.device_mesh)
    if not mesh.contains(rank):
        return None  # a rank outside of the mesh has an empty local tensor
    local = tensor._local_tensor
    if hasattr(local, "wait"):  # AsyncCollectiveTensor
        local = local.wait()
    _check_storable(local, name)
    placements = placements_of(tensor.placements, name)
    shape = tuple(tensor.shape)
    expected, _, _ = _client.local_shards(shape, mesh, placements, rank)
    if tuple(expected) != tuple(local.shape):
        raise InvalidArgument(
            f"'{name}': the local tensor of rank {rank} has the shape {tuple(local.shape)}, but the "
            f"placements {tensor.placements} of shape {shape} give {tuple(expected)}"
        )
    host, finish = _to_fill(local, name) if writable else (_on_host(local), None)
    if writable:
        note_change(tensor)  # a DTensor has a version of its own
    key = _alias_key(local) or _empty_key(local)
    return Array(
        dtype_name(tensor.dtype, name),
        shape,
        host.data_ptr(),
        host,
        (key, shape, id(mesh), tuple(placements)),
        mesh=mesh,
        placements=placements,
        local_shape=tuple(local.shape),
        finish=finish,
    )


def prepare_for_load(value: typing.Any) -> bool:
    """Makes the tensors that an optimizer creates in its first step, so that a load can fill them. Returns
    whether it did: where that fails, a load gives the optimizer those of the checkpoint."""
    if not isinstance(value, torch.optim.Optimizer) or value.state:
        return False
    from torch.distributed.checkpoint.state_dict import _init_optim_state

    rates = [(group, group["lr"]) for group in value.param_groups if "lr" in group]
    had_gradients = any(each.grad is not None for group in value.param_groups for each in group["params"])
    try:
        with _without_hooks(value):
            _init_optim_state(value)
    except Exception:  # its step needs a closure, as that of LBFGS, or rejects gradients of zero
        value.state.clear()
        for group, rate in rates:
            group["lr"] = rate
        if not had_gradients:
            value.zero_grad(set_to_none=True)
    return bool(value.state)


@contextlib.contextmanager
def _without_hooks(optimizer: torch.optim.Optimizer) -> typing.Iterator[None]:
    """Inside, a step calls no hook that the program has registered for the steps of its training."""
    names = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    hooks = {name: vars(optimizer)[name] for name in names if name in vars(optimizer)}
    vars(optimizer).update({name: type(each)() for name, each in hooks.items()})
    try:
        yield
    finally:
        vars(optimizer).update(hooks)


def state_like_parameter(
    optimizer: torch.optim.Optimizer, name: str, dtype: str, shape: tuple[int, ...]
) -> torch.Tensor | None:
    """A DTensor to be filled with the value of a name, such as state.3.exp_avg, of an optimizer's state, if
    its parameter is a DTensor of that shape. None: a plain tensor will do."""
    kind, _, rest = name.partition(".")
    number = rest.partition(".")[0]
    parameters = list(dict.fromkeys(each for group in optimizer.param_groups for each in group["params"]))
    if kind != "state" or not number.isdecimal() or int(number) >= len(parameters):
        return None
    parameter = parameters[int(number)]
    if DTensor is None or not isinstance(parameter, DTensor) or tuple(parameter.shape) != shape:
        return None
    return torch.empty_like(parameter.detach(), dtype=getattr(torch, _arrays._TORCH_DTYPE_NAMES[dtype]))
