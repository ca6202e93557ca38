"""torch tensors, modules and optimizers in one process."""

import subprocess
import sys

import numpy as np
import pytest

import shoal

torch = pytest.importorskip("torch")

STORABLE = [
    "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16",
    "float32", "float64", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz",
    "float8_e5m2fnuz",
]  # fmt: skip


def bytes_of(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


@pytest.mark.parametrize("name", STORABLE)
def test_every_dtype(checkpointer, name):
    dtype = getattr(torch, name)
    tensor = torch.randint(0, 2, (4, 8), dtype=torch.uint8).repeat(1, dtype.itemsize).view(dtype)
    checkpointer.save(1, {"x": tensor}).committed()
    loaded = checkpointer.load(1)["x"]
    assert loaded.dtype is dtype and loaded.shape == tensor.shape and bytes_of(loaded) == bytes_of(tensor)
    target = torch.zeros_like(tensor)
    checkpointer.load(1, into={"x": target})
    assert bytes_of(target) == bytes_of(tensor)


def test_views_and_order(checkpointer):
    base = torch.arange(120, dtype=torch.float32).reshape(2, 3, 4, 5)
    state = {
        "transposed": base.permute(3, 1, 0, 2),
        "sliced": base[:, 1:, ::2],
        "channels last": base.contiguous(memory_format=torch.channels_last),
        "expanded": torch.arange(5.0).expand(3, 5),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(torch.ones(3)),
    }
    checkpointer.save(1, state).committed()
    targets = {name: torch.zeros_like(value) for name, value in state.items()}
    targets["transposed"] = torch.zeros(2, 3, 4, 5).permute(3, 1, 0, 2)
    targets["sliced"] = torch.zeros(2, 3, 4, 5)[:, 1:, ::2]
    kept = dict(targets)
    checkpointer.load(1, into=targets)
    for name, value in targets.items():
        assert value is kept[name]
        assert torch.equal(value, state[name]), name


def test_views_of_the_same_memory_with_other_values_are_no_aliases(checkpointer):
    pairs = torch.tensor([1 + 2j, 3 - 4j])
    state = {"imaginary": pairs.imag, "negative": pairs.conj().imag}
    assert state["imaginary"].data_ptr() == state["negative"].data_ptr()
    checkpointer.save(1, state).committed()
    loaded = checkpointer.load(1)
    assert loaded["imaginary"].tolist() == [2, -4]
    assert loaded["negative"].tolist() == [-2, 4]


def test_small_floats_of_numpy(checkpointer):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    memory = np.arange(8, dtype=np.uint8)
    state = {name: memory.view(getattr(ml_dtypes, name)) for name in ("float8_e5m2", "float8_e4m3fn")}
    checkpointer.save(1, state).committed()
    targets = {name: np.zeros_like(value) for name, value in state.items()}
    checkpointer.load(1, into=targets)
    assert all(targets[name].tobytes() == memory.tobytes() for name in targets)


def test_other_values_of_torch(checkpointer):
    state = {"size": torch.Size([1, 2]), "dtype": torch.bfloat16, "device": torch.device("cpu")}
    checkpointer.save(1, state).committed()
    assert checkpointer.load(1) == state


def make_model():
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Embedding(10, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 10, bias=False)
    )
    model[2].weight = model[0].weight
    return model


def train(model, optimizer, steps):
    losses = []
    for step in range(steps):
        loss = model(torch.arange(10)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_training_continues_bit_for_bit(checkpointer):
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    train(model, optimizer, 3)
    scheduler.step()
    state = {
        "model": model,
        "optim": optimizer,
        "scheduler": scheduler,
        "rng": shoal.per_rank(shoal.RngState()),
    }
    checkpointer.save(3, state).committed()
    drawn, expected = torch.rand(3), train(model, optimizer, 3)

    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    weight = model[0].weight
    state = {
        "model": model,
        "optim": optimizer,
        "scheduler": scheduler,
        "rng": shoal.per_rank(shoal.RngState()),
    }
    checkpointer.load("latest", into=state)
    assert model[0].weight is weight and model[2].weight is weight
    assert torch.equal(torch.rand(3), drawn)
    assert train(model, optimizer, 3) == expected
    assert scheduler.last_epoch == 1


def test_state_dicts_work_as_well_as_their_objects(checkpointer):
    model = make_model()
    checkpointer.save(1, {"model": model.state_dict()}).committed()
    other = make_model()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    checkpointer.load(1, into={"model": other.state_dict()})
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value)


def test_numpy_and_torch_do_not_mix_up(checkpointer):
    checkpointer.save(1, {"a": np.arange(3), "b": torch.arange(3)}).committed()
    loaded = checkpointer.load(1)
    assert isinstance(loaded["a"], np.ndarray) and isinstance(loaded["b"], torch.Tensor)
    crossed = {"a": torch.zeros(3, dtype=torch.int64), "b": np.zeros(3, np.int64)}
    checkpointer.load(1, into=crossed)
    assert crossed["a"].tolist() == [0, 1, 2] and crossed["b"].tolist() == [0, 1, 2]


def with_storage_of(size):
    """A tensor of 16 MiB whose storage has been resized, as FSDP frees whole parameters."""
    tensor = torch.zeros(1 << 22)
    tensor.untyped_storage().resize_(size)
    return tensor


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: torch.zeros(3, device="meta"), "meta device"),
        (lambda: torch.eye(3).to_sparse(), "layout"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "nested"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "quantised"),
        (lambda: torch.zeros(2, dtype=torch.complex128), r"view_as_real\(tensor\), a float64 tensor"),
        (lambda: torch.zeros(2, dtype=torch.complex32), r"view_as_real\(tensor\), a float16 tensor"),
        (lambda: torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), r"view\(torch.uint8\)"),
        (lambda: with_storage_of(0), "memory was freed"),
        (lambda: with_storage_of(4), "memory was freed"),
        (lambda: np.zeros(2, np.complex128), r"array.view\(numpy.float64\)"),
        (lambda: np.zeros(2, "datetime64[s]"), r"array.view\(numpy.int64\)"),
        (lambda: np.zeros(2, "U3"), "convert it"),
    ],
)
def test_what_no_checkpoint_can_hold_is_named(checkpointer, make, says):
    with pytest.raises(shoal.InvalidArgument, match="'layer.x'.*" + says):
        checkpointer.save(1, {"layer": {"x": make()}})


def test_a_load_into_freed_memory_names_the_tensor(checkpointer):
    checkpointer.save(1, {"x": torch.zeros(1 << 22)}).committed()
    with pytest.raises(shoal.InvalidArgument, match="'x'.*memory was freed"):
        checkpointer.load(1, into={"x": with_storage_of(4)})


def test_a_shape_that_changed(checkpointer):
    checkpointer.save(1, {"x": torch.zeros(3)}).committed()
    with pytest.raises(shoal.KeyMismatch, match="x"):
        checkpointer.load(1, into={"x": torch.zeros(4)})
    with pytest.raises(shoal.KeyMismatch, match="x"):
        checkpointer.load(1, into={"x": torch.zeros(3, dtype=torch.float64)})


def test_a_lazy_parameter_is_named(checkpointer):
    with pytest.raises(shoal.InvalidArgument, match="'m.weight' is a lazy parameter: it has no shape yet"):
        checkpointer.save(1, {"m": torch.nn.LazyLinear(3)})


@pytest.mark.parametrize(
    "make", [lambda: torch.ones(2, 3), lambda: torch.ones(3, 2).t()], ids=["in place", "by a copy"]
)
def test_autograd_notices_a_load(checkpointer, make):
    checkpointer.save(1, {"x": make()}).committed()
    x, weight = make(), torch.nn.Parameter(make())
    loss = (weight * x).sum()
    before = x._version
    checkpointer.load(1, into={"x": x})
    assert x._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_tensors_of_inference_mode_are_loaded(checkpointer):
    checkpointer.save(1, {"x": torch.ones(3)}).committed()
    with torch.inference_mode():
        x = torch.zeros(3)
    checkpointer.load(1, into={"x": x})
    assert x.tolist() == [1, 1, 1]


def test_a_load_into_host_memory_does_not_depend_on_the_default_device(checkpointer):
    """Shoal filled memory on the device that the program had chosen with torch.set_default_device."""
    x, table = torch.arange(6.0).reshape(2, 3), torch.arange(4)
    checkpointer.save(1, {"x": x, "own": shoal.per_rank({"table": table})}).committed()
    into = {"x": torch.zeros(3, 2).t()}
    with torch.device("meta"):
        loaded = checkpointer.load(1)
        checkpointer.load(1, into=into)
        with checkpointer.open(1) as checkpoint:
            read = checkpoint["x"]
    for found in (loaded["x"], into["x"], read):
        assert found.device.type == "cpu" and torch.equal(found, x)
    assert torch.equal(loaded["own"]["table"], table)


def test_elements_that_share_memory_cannot_be_filled(checkpointer):
    checkpointer.save(1, {"a": torch.arange(6).reshape(2, 3)}).committed()
    with pytest.raises(shoal.InvalidArgument, match="'a' has elements that share memory"):
        checkpointer.load(1, into={"a": torch.zeros(3, dtype=torch.int64).expand(2, 3)})


def test_an_optimizer_whose_step_needs_a_closure(checkpointer):
    def make():
        weight = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
        return weight, torch.optim.LBFGS([weight], lr=0.5)

    def step(weight, optimizer):
        def closure():
            optimizer.zero_grad()
            loss = ((weight - 1) ** 4).sum()
            loss.backward()
            return loss

        return float(optimizer.step(closure))

    weight, optimizer = make()
    step(weight, optimizer)
    checkpointer.save(1, {"weight": weight, "optimizer": optimizer}).committed()
    expected = [step(weight, optimizer) for _ in range(3)]
    weight, optimizer = make()
    checkpointer.load(1, into={"weight": weight, "optimizer": optimizer})
    assert [step(weight, optimizer) for _ in range(3)] == expected


def test_an_optimizer_that_has_gradients_but_no_state_yet(checkpointer):
    def make():
        weight = torch.nn.Parameter(torch.ones(3))
        weight.grad = torch.full((3,), 0.5)
        return weight, torch.optim.AdamW([weight])

    weight, optimizer = make()
    optimizer.step()
    checkpointer.save(1, {"optimizer": optimizer}).committed()
    other, loaded = make()
    checkpointer.load(1, into={"optimizer": loaded})
    assert torch.equal(loaded.state[other]["exp_avg"], optimizer.state[weight]["exp_avg"])
    assert torch.equal(other.grad, weight.grad)


def test_a_tensor_whose_policy_is_skip_stays_as_it_is(checkpointer):
    checkpointer.save(1, {"a": torch.zeros(2, 3), "b": torch.ones(2, 3)}).committed()
    into = {"a": torch.full((3, 2), 7.0).t(), "b": torch.full((3, 2), 7.0).t()}
    checkpointer.load(1, into=into, policies={"a": "skip"})
    assert torch.equal(into["a"], torch.full((2, 3), 7.0)) and torch.equal(into["b"], torch.ones(2, 3))


def test_an_optimizer_without_state_has_none_after_a_load_that_finds_none(checkpointer):
    """It would have taken a step otherwise, which the training that begins then would not begin with."""
    weights, optimizer = make_optimizer(torch.optim.AdamW)
    state = {"weights": weights, "optimizer": optimizer}
    assert checkpointer.load_or_start(into=state) is None
    assert not optimizer.state
    checkpointer.save(1, {"weights": weights}).committed()
    with pytest.raises(shoal.KeyMismatch):
        checkpointer.load(1, into=state)
    assert not optimizer.state
    for policy in ("lenient", "allow_missing", "skip"):
        checkpointer.load(1, into=state, policies={"optimizer": policy})
        assert not optimizer.state and optimizer.param_groups[0]["lr"] == 1e-3
    optimizer.zero_grad()
    weights[0].grad = torch.ones(3)
    optimizer.step()
    checkpointer.load(1, into=state, policies={"optimizer": "skip"})
    assert optimizer.state[weights[0]]["step"] == 1 and weights[1] not in optimizer.state


def test_a_load_calls_no_hook_of_an_optimizers_step(checkpointer):
    weights, optimizer = make_optimizer(torch.optim.AdamW)
    calls = []
    for register in (optimizer.register_step_pre_hook, optimizer.register_step_post_hook):
        register(lambda *_: calls.append(1))
    assert checkpointer.load_or_start(into={"optimizer": optimizer}) is None
    assert not calls
    weights[0].grad = torch.ones(3)
    optimizer.step()
    assert len(calls) == 2


def make_optimizer(kind, weights=2):
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(3)) for _ in range(weights)]
    return weights, kind(weights)


def assert_same_state(optimizer, expected):
    assert optimizer["param_groups"] == expected["param_groups"]
    assert optimizer["state"].keys() == expected["state"].keys()
    for number, state in expected["state"].items():
        assert optimizer["state"][number].keys() == state.keys()
        for name, value in state.items():
            torch.testing.assert_close(optimizer["state"][number][name], value, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [torch.optim.Adam, lambda given: torch.optim.SGD(given, 0.1, momentum=0.9)])
def test_an_optimizer_gets_state_of_parameters_that_had_no_gradient_yet(checkpointer, kind):
    def step(weights, optimizer):
        for weight in weights:
            weight.grad = torch.full((3,), 0.5)
        optimizer.step()

    weights, optimizer = make_optimizer(kind)
    step(weights, optimizer)
    step(weights, optimizer)
    checkpointer.save(1, {"optimizer": optimizer}).committed()
    others, loaded = make_optimizer(kind)
    step(others[:1], loaded)
    checkpointer.load(1, into={"optimizer": loaded})
    assert_same_state(loaded.state_dict(), optimizer.state_dict())


def test_an_optimizer_gets_state_that_it_lacks_and_keeps_what_may_be_missing(checkpointer):
    def step(weight, optimizer, value):
        weight.grad = torch.full((3,), value)
        optimizer.step()
        optimizer.zero_grad()

    weights, optimizer = make_optimizer(torch.optim.Adam)
    step(weights[0], optimizer, 1.0)
    checkpointer.save(1, {"optimizer": optimizer}).committed()
    others, loaded = make_optimizer(torch.optim.Adam)
    step(others[1], loaded, 2.0)
    kept = loaded.state[others[1]]["exp_avg"].clone()
    checkpointer.load(1, into={"optimizer": loaded}, policies={"optimizer": "lenient"})
    assert torch.equal(loaded.state[others[0]]["exp_avg"], optimizer.state[weights[0]]["exp_avg"])
    assert torch.equal(loaded.state[others[1]]["exp_avg"], kept)


def one_step(weights, optimizer):
    for weight in weights:
        weight.grad = torch.full((3,), 0.5)
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("saved", [0, 1])
@pytest.mark.parametrize("trained", [0, 1, 2])
def test_an_optimizer_has_no_state_of_parameters_that_had_none_when_it_was_saved(
    checkpointer, saved, trained
):
    """A load makes the state of all parameters of an optimizer that has none, to fill it."""
    weights, optimizer = make_optimizer(torch.optim.AdamW)
    if saved:
        one_step(weights[1:], optimizer)  # the first one is frozen, or not used
    checkpointer.save(1, {"nested": {"optimizer": optimizer}}).committed()
    others, loaded = make_optimizer(torch.optim.AdamW)
    if trained:
        one_step(others[:trained], loaded)
    checkpointer.load(1, into={"nested": {"optimizer": loaded}})
    assert_same_state(loaded.state_dict(), optimizer.state_dict())
    one_step(others, loaded)


def test_the_state_dict_of_an_optimizer_without_state_is_warned_of(checkpointer, caplog):
    """As with DCP, a dictionary gets what it has keys for."""
    weights, optimizer = make_optimizer(torch.optim.AdamW)
    one_step(weights, optimizer)
    checkpointer.save(1, {"o": optimizer, "empty": {}}).committed()
    fresh = make_optimizer(torch.optim.AdamW)[1]
    checkpointer.load(1, into={"o": fresh, "empty": {}})
    assert "empty dict" not in caplog.text
    state = make_optimizer(torch.optim.AdamW)[1].state_dict()
    checkpointer.load(1, into={"o": state, "empty": {}})
    assert state["state"] == {}
    assert "'o.state' is an empty dict in this state, so that 6 values" in caplog.text


def test_an_optimizer_that_never_has_a_state(checkpointer):
    weights, optimizer = make_optimizer(lambda given: torch.optim.SGD(given, 0.1))
    one_step(weights, optimizer)
    checkpointer.save(1, {"optimizer": optimizer}).committed()
    _, loaded = make_optimizer(lambda given: torch.optim.SGD(given, 0.7))
    checkpointer.load(1, into={"optimizer": loaded})
    assert_same_state(loaded.state_dict(), optimizer.state_dict())


def test_a_part_of_the_state_of_a_parameter_is_an_error(checkpointer):
    def make(amsgrad):
        return make_optimizer(lambda given: torch.optim.AdamW(given, amsgrad=amsgrad))

    weights, optimizer = make(False)
    one_step(weights, optimizer)
    checkpointer.save(1, {"optimizer": optimizer}).committed()
    _, loaded = make(True)
    with pytest.raises(shoal.KeyMismatch, match="missing 'optimizer.state.0.max_exp_avg_sq'.*another kind"):
        checkpointer.load(1, into={"optimizer": loaded})
    with pytest.raises(shoal.KeyMismatch, match="missing 'optimizer.state.0.max_exp_avg_sq'"):
        checkpointer.load(1, into={"optimizer": loaded}, policies={"optimizer": "allow_unexpected"})


def test_a_missing_state_of_an_optimizer_is_explained(checkpointer):
    """What a dictionary has and the checkpoint lacks is an error, as with DCP."""
    weights, optimizer = make_optimizer(torch.optim.AdamW)
    one_step(weights[:1], optimizer)
    checkpointer.save(1, {"optimizer": optimizer.state_dict()}).committed()
    one_step(weights, optimizer)
    into = {"optimizer": optimizer.state_dict()}
    with pytest.raises(shoal.KeyMismatch, match="no gradient.*policies={'optimizer.state.1': 'lenient'}"):
        checkpointer.load(1, into=into)
    checkpointer.load(1, into=into, policies={"optimizer.state.1": "lenient"})


def test_an_optimizer_gets_lists_that_are_longer_than_its_own(checkpointer):
    def make(iterations):
        (weight,), optimizer = make_optimizer(lambda w: torch.optim.LBFGS(w, max_iter=iterations), 1)

        def closure():
            optimizer.zero_grad()
            loss = ((weight - 3) ** 4).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        return weight, optimizer

    _, optimizer = make(8)
    checkpointer.save(1, {"optimizer": optimizer}).committed()
    weight, loaded = make(4)
    checkpointer.load(1, into={"optimizer": loaded})
    expected, state = next(iter(optimizer.state.values())), loaded.state[weight]
    assert len(state["old_dirs"]) == len(expected["old_dirs"]) > 3
    assert all(map(torch.equal, state["old_dirs"], expected["old_dirs"]))
    assert state["func_evals"] == expected["func_evals"]


@pytest.mark.parametrize("fresh", [{}, {"k": 0}, None])
def test_a_module_gets_the_whole_extra_state_that_was_saved(checkpointer, fresh):
    class Module(torch.nn.Module):
        def __init__(self, extra):
            super().__init__()
            self.weight, self.extra = torch.nn.Parameter(torch.ones(2)), extra

        def get_extra_state(self):
            return self.extra

        def set_extra_state(self, extra):
            self.extra = extra

    saved = {"k": 5, "more": [1, {"x": torch.ones(2)}]}
    checkpointer.save(1, {"m": torch.nn.Sequential(torch.nn.Linear(2, 2), Module(saved))}).committed()
    loaded = Module(fresh)
    checkpointer.load(1, into={"m": torch.nn.Sequential(torch.nn.Linear(2, 2), loaded)})
    assert loaded.extra["k"] == 5 and loaded.extra["more"][0] == 1
    assert loaded.extra["more"][1]["x"].tolist() == [1, 1]


def test_a_module_whose_own_state_dict_takes_no_arguments(checkpointer):
    class Head(torch.nn.Module):
        def __init__(self, value):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((2,), value))

        def state_dict(self):
            return {"weight": self.weight.detach()}

        def load_state_dict(self, state):
            self.weight.data.copy_(state["weight"])

    checkpointer.save(1, {"head": Head(3.0)}).committed()
    head = Head(0.0)
    checkpointer.load(1, into={"head": head})
    assert head.weight.tolist() == [3, 3]


def test_a_module_whose_state_dict_was_replaced_is_asked_as_the_replacement_wants(checkpointer):
    module = torch.nn.Linear(2, 2)
    full = module.state_dict
    module.state_dict = lambda: {"bias": full()["bias"]}
    checkpointer.save(1, {"module": module}).committed()
    assert list(checkpointer.load(1)["module"]) == ["bias"]
    module.state_dict = dict
    checkpointer.save(2, {"module": module, "n": 1}).committed()
    assert checkpointer.load(2)["module"] == {}


EMPTY_SHARDS = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from shoal import _tree
dist.init_process_group("fake", store=FakeStore(), rank=5, world_size=6)
mesh = init_device_mesh("cpu", (6,))
def shard(padding):
    parts = dict(run_check=False, shape=(4, 2), stride=(2, 1))
    return torch.nn.Parameter(DTensor.from_local(torch.empty(padding, 2)[:0], mesh, [Shard(0)], **parts))
for padding in (0, 1):
    tied = shard(padding)
    state = {"a": tied, "b": tied, "c": tied.detach(), "d": shard(padding), "e": shard(padding)}
    walker = _tree.Walker(5, False, False)
    walker.walk_all(state)
    print([leaf.kind for leaf in walker.leaves])
"""


def test_tied_tensors_are_aliases_on_a_rank_that_has_no_element_of_them(python_environment):
    program = [sys.executable, "-c", EMPTY_SHARDS]
    ran = subprocess.run(program, env=python_environment, capture_output=True, text=True, timeout=120)
    expected = "['array', 'alias', 'alias', 'array', 'array']"
    assert ran.stdout.splitlines() == [expected, expected], ran.stderr
