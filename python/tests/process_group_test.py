"""Ranks without a launcher take their numbers from the default process group of torch."""

import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")

LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "SHOAL_JOB_ID")


def run(environment, tmp_path, body, ranks=2):
    """Runs a program on several ranks, which meet by a file; returns their output."""
    program = f"""
        import sys, datetime, torch, torch.distributed as dist, shoal
        from shoal import _process_group
        rank = int(sys.argv[1])
        dist.init_process_group("gloo", init_method="file://{tmp_path}/meet", rank=rank, world_size={ranks})
        root = "{tmp_path}/root"
    """
    program = textwrap.dedent(program) + textwrap.dedent(body)
    environment = {name: value for name, value in environment.items() if name not in LAUNCHERS}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(rank)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(outputs)
    return outputs


def test_ranks_of_a_group_save_and_load_one_checkpoint(python_environment, tmp_path):
    (tmp_path / "root").mkdir()
    body = """
        with shoal.Checkpointer(root) as ck:
            assert (ck.rank, ck.world_size) == (rank, 2), (ck.rank, ck.world_size)
            state = {"own": shoal.per_rank(rank), "all": torch.arange(4)}
            assert ck.save(1, state).committed(60).world_size == 2
        with shoal.Checkpointer(root) as ck:  # again, in the same group
            assert ck.load(1)["own"] == rank
    """
    run(python_environment, tmp_path, body)


def test_a_rank_that_opens_alone_says_so(python_environment, tmp_path):
    (tmp_path / "root").mkdir()
    body = """
        _process_group._RANK_0_TIMEOUT_S = 1
        if rank == 1:
            try:
                shoal.Checkpointer(root)
            except shoal.Unavailable as error:
                print(error)
        dist.barrier()
    """
    assert "waited 1 s for rank 0" in run(python_environment, tmp_path, body)[1]


def test_an_optimizer_of_shards_gets_state_that_it_lacks(python_environment, tmp_path):
    (tmp_path / "root").mkdir()
    body = """
        from torch.distributed.fsdp import fully_shard
        def make(has_gradients):
            model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 3))
            fully_shard(model)
            optimizer = torch.optim.Adam(model.parameters())
            for number, parameter in enumerate(model.parameters()):
                if number in has_gradients:
                    parameter.grad = torch.full_like(parameter, 1.0 + number + rank)
            optimizer.step()
            return model, optimizer
        with shoal.Checkpointer(root) as ck:
            _, saved = make(range(4))
            ck.save(1, {"optimizer": saved}).committed(60)
            _, loaded = make([1, 2])
            ck.load(1, into={"optimizer": loaded})
        for number, state in saved.state_dict()["state"].items():
            for name, value in state.items():
                found = loaded.state_dict()["state"][number][name]
                assert type(found) is type(value), (number, name, type(found))
                if name != "step":
                    assert found.placements == value.placements
                    value, found = value.to_local(), found.to_local()
                assert torch.equal(found, value), (number, name)
    """
    run(python_environment, tmp_path, body)
