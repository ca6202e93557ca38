"""Wrong input, processes that end early, and failures: always an exception that says what to do."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import shoal


# A node that soon aborts a save for which another rank does not come.
IMPATIENT = {"attempt_deadline_ms": 1000}


def run_python(program: str, environment: dict, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def run_shoal(*arguments: str) -> str:
    program = os.path.join(os.path.dirname(shoal.__file__), "bin", "shoal")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ([1, 2], "must be a dict"),
        ({"x": object()}, "state_dict"),
        ({"x": np.array(["a"])}, "dtype"),
        ({"x": np.array([1], "datetime64[s]")}, "dtype"),
        ({"x": np.ma.array([1], mask=[True])}, "masked"),
        ({1.5: 2}, "the state has the key 1.5: keys of a dict"),
        ({"a": {"b": 1}, "a.b": 2}, "two values have the name 'a.b'"),
        ({1: 2, "1": 3}, "two values have the name '1'"),
        ({"__shoal_tree__": {"x": 1}}, "the name '__shoal_tree__.x' is reserved"),
        ({"\udc80": 1}, r"the name '\\udc80' is not valid Unicode"),
        ({"n": 10**5000}, "'n' cannot be written as JSON"),
    ],
)
def test_what_cannot_be_saved_is_named(checkpointer, state, says):
    with pytest.raises(shoal.InvalidArgument, match=says):
        checkpointer.save(1, state)
    checkpointer.save(2, {"x": 1}).committed()


def test_a_state_that_contains_itself(checkpointer):
    state = {"x": 1}
    state["self"] = state
    with pytest.raises(shoal.InvalidArgument, match="contains itself"):
        checkpointer.save(1, state)


def test_lists_that_contain_themselves_and_deep_states(checkpointer):
    itself, deep_list, deep = [1], [], {}
    itself.append(itself)
    inner_list, inner = deep_list, deep
    for _ in range(3000):
        inner_list.append([])
        inner["k"] = {}
        inner_list, inner = inner_list[0], inner["k"]
    for state, says in (
        ({"l": itself}, "contains itself"),
        ({"l": deep_list}, "contains itself"),
        (deep, "more than 200 containers"),
        ({"p": shoal.per_rank(deep)}, "more than 200 containers"),
    ):
        with pytest.raises(shoal.InvalidArgument, match=says):
            checkpointer.save(1, state)
    for _ in range(190):
        inner["k"] = {"x": 1}
        inner = inner["k"]
    for _ in range(2900):
        deep = deep["k"]
    with pytest.raises(shoal.InvalidArgument, match="more than 200"):
        checkpointer.save(1, deep)
    for _ in range(100):
        deep = deep["k"]
    checkpointer.save(1, deep).committed()
    assert checkpointer.load(1) == deep


def test_values_that_cannot_be_pickled_are_named(checkpointer):
    class Local:
        pass

    for value in (lambda: 1, Local()):
        with pytest.raises(shoal.InvalidArgument, match="'a.b' .*cannot be pickled"):
            checkpointer.save(1, {"a": {"b": value}}, allow_pickle=True)


def test_a_second_checkpointer_of_a_root_is_refused_at_once(checkpointer, root):
    begun = time.monotonic()
    for path in (root, root / ".." / root.name):
        with pytest.raises(shoal.Refused, match="already: use it, close it first"):
            shoal.Checkpointer(path)
    assert time.monotonic() - begun < 10, "the wait for the node takes 30 s"
    checkpointer.save(1, {"x": 1}).committed()
    with shoal.Checkpointer(root, read_only=True) as reader:
        assert reader.load() == {"x": 1}


def test_a_root_that_does_not_exist_is_named(root):
    with pytest.raises(shoal.NotFound, match="root .*root does not exist: create this folder"):
        shoal.Checkpointer(root)


def test_a_read_only_array_cannot_be_filled(checkpointer):
    checkpointer.save(1, {"x": np.ones(3)}).committed()
    array = np.zeros(3)
    array.flags.writeable = False
    with pytest.raises(shoal.InvalidArgument, match="read-only"):
        checkpointer.load(1, into={"x": array})


@pytest.mark.parametrize("step", ["first", -1, 1.5, None, True])
def test_a_step_is_a_number_or_latest(checkpointer, step):
    with pytest.raises(shoal.InvalidArgument, match="latest"):
        checkpointer.load(step)


@pytest.fixture(scope="module")
def has_step_1(tmp_path_factory):
    with shoal.Checkpointer(tmp_path_factory.mktemp("root")) as checkpointer:
        checkpointer.save(1, {"x": np.zeros((2, 3)), "o": 1}).committed()
        yield checkpointer


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda ck: ck.save("7", {}), "the step is '7'"),
        (lambda ck: ck.save(1.5, {}), "the step is 1.5"),
        (lambda ck: ck.save(True, {}), "the step is True"),
        (lambda ck: ck.save(-1, {}), "the step is -1"),
        (lambda ck: ck.save(2**64, {}), r"a number from 0 to 2\*\*64 - 1"),
        (lambda ck: ck.save(2, None), "must be a dict"),
        (lambda ck: ck.save(2, {"": 1}), "a name is empty"),
        (lambda ck: ck.save(2, {"a": shoal.per_rank({"b": object()})}), "per_rank value 'a': 'value.b'"),
        (lambda ck: ck.save(2, {"a": shoal.replicated(np.ones(2), group=object())}), "group .* unknown"),
        (lambda ck: ck.save(2, {"a": shoal.replicated(np.ones(2), group=[5, 6])}), "not in the mesh"),
        (lambda ck: ck.save(2, {}, metadata={1: "x"}), "metadata is {1: 'x'}"),
        (lambda ck: ck.save(2, {}, metadata="x"), "metadata is 'x'"),
        (lambda ck: ck.save(2, {}).committed("soon"), "the timeout is 'soon'"),
        (lambda ck: ck.save(2, {}).committed(float("nan")), "the timeout is nan"),
        (lambda ck: ck.save(2, {}).add_done_callback(3), "the callback is 3"),
        (lambda ck: ck.wait_all("x"), "the timeout is 'x'"),
        (lambda ck: ck.close("x"), "the timeout is 'x'"),
        (lambda ck: ck.list(-1), "newest is -1"),
        (lambda ck: ck.load(1, into=[1]), "must be a dict"),
        (lambda ck: ck.load(1, into={}, policies="strict"), "policies is 'strict'"),
        (lambda ck: ck.load(1, into={}, policies={"": "odd"}), "the policy 'odd'"),
        (lambda ck: ck.load(1, policies={"": "strict"}), "pass `into` too"),
        (lambda ck: ck.load(1, fallback="never"), "none or previous"),
        (lambda ck: ck.load(1, fallback=1), "fallback is 1: none or previous"),
        (lambda ck: ck.load(1, into={}, method=1), "method is 1: automatic, direct or two-stage"),
        (lambda ck: ck.open(1, fallback=1), "fallback is 1"),
        (lambda ck: ck.save(2, {}, metadata={"a": "\udc80"}), "metadata is"),
        (lambda ck: ck.export_safetensors(1, 5), "the folder is 5"),
        (lambda ck: ck.load(1, into={}, method="fast"), "automatic, direct or two-stage"),
        (lambda ck: ck.open(1).read("x", [0]), "for a box pass both"),
        (lambda ck: ck.open(1).read("x", [-1, 0], [1, 1]), "for a box pass both"),
        (lambda ck: ck.open(1).read("x", [0, 0], ["a", 1]), "for a box pass both"),
        (lambda ck: ck.open(1).read("x", [0, 0], [9, 9]), "exceeds the tensor's size"),
        (lambda ck: ck.open(1).read("o"), "is an object"),
        (lambda ck: shoal.Checkpointer(ck.root, node=[1]), "a dict of settings"),
        (lambda ck: shoal.Checkpointer(ck.root, node={1: 2}), "the node's setting 1"),
        (lambda ck: shoal.Checkpointer(ck.root, node={"keep_last": "x"}), "'keep_last' cannot be 'x'"),
        (lambda ck: shoal.Checkpointer(ck.root, dedupe=3), "dedupe cannot be 3"),
        (lambda ck: shoal.Checkpointer(ck.root, node_program=5), "node_program is 5"),
        (lambda ck: shoal.Checkpointer(5), "root is 5: the path of a folder"),
        (lambda ck: shoal.Checkpointer(""), "root is ''"),
        (lambda ck: shoal.Checkpointer("a\0b"), "root is 'a"),
        (lambda ck: shoal.Checkpointer("\udc80"), "root is "),
        (lambda ck: shoal.Checkpointer(ck.root, rank="a", world_size=2), "RANK is 'a'"),
        (lambda ck: shoal.Checkpointer(ck.root, rank=1), "rank is 1, but world_size is not given"),
        (lambda ck: shoal.Checkpointer(ck.root, world_size=2), "world_size is 2, but rank is not given"),
        (lambda ck: shoal.Checkpointer(ck.root, allow_pickle="no"), "allow_pickle is 'no': True or False"),
        (lambda ck: ck.save(2, {}, allow_pickle="no"), "allow_pickle is 'no'"),
        (lambda ck: ck.prepare({}, allow_pickle=1), "allow_pickle is 1"),
        (lambda ck: ck.load(1, allow_pickle="no"), "allow_pickle is 'no'"),
        (lambda ck: ck.open(1).tree(allow_pickle="no"), "allow_pickle is 'no'"),
        (lambda ck: shoal.Checkpointer(ck.root, rank=5, world_size=2), "WORLD_SIZE is 2"),
    ],
)
def test_a_wrong_argument_is_named(has_step_1, call, says):
    with pytest.raises(shoal.InvalidArgument, match=says):
        call(has_step_1)
    has_step_1.save(3, {"x": 1}).committed()


def test_waits_may_be_of_any_length(checkpointer):
    handle = checkpointer.save(1, {"x": 1})
    for timeout in (1e300, float("inf"), np.float32(60)):
        assert handle.committed(timeout).step == 1
    assert handle.committed(-1).step == 1


def test_options_that_do_not_exist(root):
    with pytest.raises(shoal.InvalidArgument, match="colour"):
        shoal.Checkpointer(root, colour="red")
    with pytest.raises(shoal.InvalidArgument, match="collective-free"):
        shoal.Checkpointer(root, mode="fast")
    with pytest.raises(shoal.InvalidArgument, match="keep_lost"):
        shoal.Checkpointer(root, node={"keep_lost": 3})
    with pytest.raises(shoal.InvalidArgument, match="max_in_flight"):
        shoal.Checkpointer(root, max_in_flight="many")


def test_a_closed_checkpointer_refuses_calls(checkpointer):
    checkpointer.save(1, {"x": 1})
    checkpoint = None
    checkpointer.wait_all()
    checkpoint = checkpointer.open(1)
    checkpointer.close()
    with pytest.raises(shoal.Refused, match="closed"):
        checkpointer.save(2, {"x": 1})
    with pytest.raises(shoal.Refused, match="closed"):
        checkpointer.load(1)
    with pytest.raises(shoal.Refused, match="closed"):
        checkpoint["x"]
    checkpointer.close()


def test_a_step_may_be_saved_twice(checkpointer):
    checkpointer.save(1, {"x": 1}).committed()
    second = checkpointer.save(1, {"x": 2})
    second.committed()
    assert second.attempt == 2 and checkpointer.load(1) == {"x": 2}


def test_a_state_may_change_its_shape(checkpointer):
    checkpointer.save(1, {"x": np.zeros(3), "y": 1}).committed()
    checkpointer.save(2, {"x": np.ones((5, 2)), "z": "new"}).committed()
    np.testing.assert_array_equal(checkpointer.load(2)["x"], np.ones((5, 2)))
    np.testing.assert_array_equal(checkpointer.load(1)["x"], np.zeros(3))


def test_several_threads_may_call(checkpointer):
    def save(first: int) -> None:
        for step in range(first, first + 5):
            checkpointer.save(step, {"x": np.full(10_000, step)})

    threads = [threading.Thread(target=save, args=(first,)) for first in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    checkpointer.wait_all()
    assert sum(each.state == "committed" for each in checkpointer.list()) == 10


def test_a_forked_process_gets_an_error_and_ends(checkpointer):
    handle = checkpointer.save(1, {"x": np.zeros(10)})
    handle.committed()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        answers = []
        for call in (lambda: checkpointer.save(2, {"x": 1}), lambda: handle.committed(), checkpointer.latest):
            try:
                call()
                answers.append("no error")
            except shoal.Refused as error:
                answers.append("forked" if "forked" in str(error) else str(error))
        os.write(writes, " ".join(answers).encode())
        os._exit(0)
    os.close(writes)
    answer = os.read(reads, 1000).decode()
    assert os.waitpid(child, 0)[1] == 0
    assert answer == "forked forked forked"
    checkpointer.save(3, {"x": 1}).committed()


def test_a_fork_while_another_thread_calls_does_not_hang(checkpointer):
    """The lock of the Checkpointer is held when the process forks. The child gets an error, too."""
    with checkpointer._lock:
        child = []
        thread = threading.Thread(target=lambda: child.append(os.fork()) or (child[0] == 0 and in_child()))

        def in_child():
            try:
                checkpointer.save(1, {"x": 1})
            except shoal.Refused:
                os._exit(7)
            os._exit(1)

        thread.start()
        thread.join()
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child[0], os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child[0], signal.SIGKILL)
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 7


SAVES_AND_ENDS = """
    import sys, numpy as np, shoal
    ck = shoal.Checkpointer(sys.argv[1])
    ck.save(1, {"x": np.zeros(3_000_000)})
"""


def test_an_interpreter_that_exits_completes_its_saves(root, python_environment):
    root.mkdir()
    ended = run_python(SAVES_AND_ENDS, python_environment, str(root))
    assert (ended.returncode, ended.stderr) == (0, "")
    with shoal.Checkpointer(root) as checkpointer:
        assert checkpointer.latest().step == 1


def test_an_interpreter_that_raises_ends(root, python_environment):
    root.mkdir()
    ended = run_python(
        SAVES_AND_ENDS + "    raise ValueError('of the trainer')\n", python_environment, str(root)
    )
    assert ended.returncode == 1
    assert "ValueError: of the trainer" in ended.stderr
    deadline = time.monotonic() + 60
    while "committed" not in run_shoal("ls", str(root)):  # the node has gone on
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_interpreter_that_exits_while_daemon_threads_call_ends(root, python_environment):
    """The interpreter ends their threads when they come back from the client."""
    root.mkdir()
    program = """
        import sys, threading, shoal
        ck = shoal.Checkpointer(sys.argv[1])
        handle = ck.save(1, {"x": 1})

        def call():
            while True:
                handle.committed()

        for _ in range(8):
            threading.Thread(target=call, daemon=True).start()
    """
    for _ in range(3):
        ended = run_python(program, python_environment, str(root))
        assert (ended.returncode, ended.stderr) == (0, "")


def test_an_interpreter_that_raises_does_not_wait_for_the_call_of_a_daemon_thread(root, python_environment):
    root.mkdir()
    program = """
        import sys, threading, time, shoal
        ck = shoal.Checkpointer(sys.argv[1], rank=0, world_size=2, job_id="a daemon", max_in_flight=1)
        handle = ck.save(1, {"x": 1})  # the other rank never comes
        threading.Thread(target=lambda: ck.save(2, {"x": 1}), daemon=True).start()
        while ck._lock.acquire(blocking=False):
            ck._lock.release()
        raise ValueError("of the trainer")
    """
    begun = time.monotonic()
    ended = run_python(program, python_environment, str(root))
    assert time.monotonic() - begun < 60  # the node aborts the save after 120 s
    assert ended.returncode == 1 and "another thread is in a call of it" in ended.stderr, ended.stderr


@pytest.mark.parametrize(
    "ends", ["raise ValueError('of the trainer')", "os.kill(os.getpid(), signal.SIGINT)"]
)
def test_an_interpreter_that_raises_does_not_wait_for_other_ranks(root, python_environment, ends):
    root.mkdir()
    program = f"""
        import os, signal, sys, shoal
        ck = shoal.Checkpointer(sys.argv[1], rank=0, world_size=2, job_id="two that raise")
        handle = ck.save(1, {{"x": 1}})  # the other rank never comes
        {ends}
    """
    begun = time.monotonic()
    ended = run_python(program, python_environment, str(root))
    assert time.monotonic() - begun < 60  # the node aborts the save after 120 s
    assert ended.returncode in (1, -signal.SIGINT)
    assert "of the trainer" in ended.stderr or "KeyboardInterrupt" in ended.stderr
    assert "step 1 (g1a1) is still undecided" in ended.stderr


def test_a_block_that_raises_does_not_wait_for_other_ranks(root):
    root.mkdir()
    begun = time.monotonic()
    with pytest.raises(ValueError, match="of the trainer"):
        with shoal.Checkpointer(root, rank=0, world_size=2, job_id="a block that raises") as checkpointer:
            handle = checkpointer.save(1, {"x": 1})
            raise ValueError("of the trainer")
    with pytest.raises(shoal.Unavailable, match="closed before the node reported"):
        handle.committed()
    del checkpointer, handle
    assert time.monotonic() - begun < 60  # the node aborts the save after 120 s


@pytest.mark.parametrize(
    "call",
    [
        "h.committed()",
        "ck.save(2, {'x': np.zeros(10)})",  # waits for a slot: max_in_flight is 1
        "ck.load('latest', into={'x': np.zeros(10)})",  # waits for the save
        "ck.wait_all()",
    ],
)
def test_ctrl_c_interrupts_every_call_that_waits(root, python_environment, call):
    root.mkdir()
    program = f"""
        import sys, numpy as np, shoal
        ck = shoal.Checkpointer(sys.argv[1], rank=0, world_size=2, job_id="two", max_in_flight=1)
        h = ck.save(1, {{"x": np.zeros(10)}})  # the other rank never comes
        try:
            print("waits", flush=True)
            {call}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            import os
            os._exit(0)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(root)],
        env=python_environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "waits\n"
    time.sleep(0.5)  # until it waits, usually
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    assert child.wait(60) == 0


def test_a_wait_with_a_timeout(root):
    root.mkdir()
    checkpointer = shoal.Checkpointer(root, rank=0, world_size=2, job_id="other-two", node=IMPATIENT)
    handle = checkpointer.save(1, {"x": 1})
    with pytest.raises(TimeoutError):
        handle.committed(timeout=0.05)
    assert not handle.done()
    with pytest.raises(shoal.DeadlineExceeded, match="still open"):
        checkpointer.close(timeout=0)
    with pytest.raises(shoal.Error, match="rank 1"):  # which never came
        checkpointer.close()


def test_a_failed_save_is_reported_by_the_next_one(root):
    root.mkdir()
    checkpointer = shoal.Checkpointer(root, on_failed="report")
    checkpointer.save(1, {"x": 1}).committed()
    with pytest.raises(shoal.InvalidArgument):  # the client fails this save: its name is not allowed
        checkpointer.save(2, {"a/../b": np.zeros(3)})
    checkpointer.save(3, {"x": 1}).committed()
    checkpointer.close()


def test_the_python_lock_is_free_while_a_save_copies_and_waits(checkpointer):
    array = np.zeros(30_000_000)
    checkpointer.prepare({"x": array})
    counted, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    checkpointer.save(1, {"x": array}).committed()
    after = counted[0]
    stop.set()
    thread.join()
    assert after - before > 10


def test_every_code_of_the_client_has_a_class():
    """I/O errors and internal ones once were of the base class."""
    source = pathlib.Path(__file__).parents[2] / "base" / "status.cpp"
    names = source.read_text().split("code_name(Code code) {")[1].split("\n}\n")[0]
    codes = set(re.findall(r'return "(.+)";', names)) - {"ok", "unknown code"}
    assert len(codes) == 17 and codes == set(shoal._errors._BY_CODE)
    assert {each.code for each in shoal.Error.__subclasses__()} == codes


def test_numpy_is_all_that_an_import_needs(python_environment):
    program = "import shoal, sys; print(sorted(set(sys.modules) & {'torch', 'jax', 'nanobind', 'ml_dtypes'}))"
    ended = run_python(program, python_environment)
    assert ended.stdout == "[]\n", ended.stderr


def test_a_save_in_a_signal_handler_has_nothing_left_to_import(root, python_environment):
    pytest.importorskip("torch")
    root.mkdir()
    program = """
        import signal, sys, torch, shoal
        ck = shoal.Checkpointer(sys.argv[1])
        state = {"x": torch.ones(2), "own": shoal.per_rank(shoal.replicated(torch.ones(2))), "n": 1}
        before = set(sys.modules)
        signal.signal(signal.SIGTERM, lambda *_: ck.save(1, state))
        signal.raise_signal(signal.SIGTERM)
        assert not [name for name in set(sys.modules) - before if name.startswith("shoal")]
        ck.close()
    """
    ran = run_python(program, python_environment, str(root))
    assert ran.returncode == 0, ran.stderr
