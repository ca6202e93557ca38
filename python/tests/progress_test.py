"""Progress of saves and loads, and the lines of the log."""

import io
import logging
import os
import pty
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import shoal
from shoal import _progress


def test_a_callback_learns_of_phases_and_bytes(root):
    root.mkdir()
    seen = []
    state = {"w": np.arange(16 << 20, dtype=np.float32)}  # 64 MiB
    with shoal.Checkpointer(root, progress=seen.append) as ck:
        ck.save(3, state).committed()
        assert ck.load(3, into=state).metadata.step == 3
        ck.load()
    saves = [each for each in seen if each.action == "save"]
    loads = [each for each in seen if each.action == "load"]
    assert saves and loads and all(type(each) is shoal.Progress for each in seen)
    assert {each.step for each in seen} == {3}
    assert [each.phase for each in saves].count("done") == 1 and saves[-1].phase == "done"
    assert [each.phase for each in loads].count("done") == 2
    assert {each.phase for each in saves} <= {"staging", "writing", "committing", "done"}
    assert {each.phase for each in loads} <= {"choosing", "reading", "done"}
    assert saves[-1].bytes_done == saves[-1].bytes_total >= 64 << 20
    assert all(each.bytes_done <= each.bytes_total for each in seen)
    assert not any(thread.name == "shoal-progress" for thread in threading.enumerate())


def test_what_ends_while_the_callback_runs_is_reported_as_done(root):
    root.mkdir()
    seen, handles = [], []

    def waits_for_the_commit(progress):
        seen.append(progress.phase)
        while progress.action == "save" and not (handles and handles[0].done()):
            time.sleep(0.01)

    with shoal.Checkpointer(root, progress=waits_for_the_commit) as ck:
        handles.append(ck.save(1, {"w": np.zeros(1 << 10)}))
        handles[0].committed()
    assert seen[-1] == "done"


def test_progress_of_a_save_that_a_rank_never_stages_stays_undone(root):
    root.mkdir()
    seen = []
    ck = shoal.Checkpointer(root, rank=0, world_size=2, job_id="two", progress=seen.append)
    ck.save(1, {"w": np.zeros(1 << 20)})
    deadline = threading.Event()
    while not any(each.bytes_total >= 8 << 20 for each in seen):
        assert not deadline.wait(0.05)
        assert len(seen) < 600
    assert not any(each.phase == "done" for each in seen)
    ck._abandon()


def test_a_callback_that_fails_is_logged_once_and_no_save_fails(root, caplog):
    root.mkdir()

    def fails(_):
        raise ValueError("mine")

    with shoal.Checkpointer(root, progress=fails) as ck:
        for step in range(3):
            ck.save(step, {"w": np.full(9, step)}).committed()
        assert not ck._watcher._running
    assert sum("the progress callback failed" in each.getMessage() for each in caplog.records) == 1


def test_a_bar_is_one_line_that_is_removed(capsys):
    stream = io.StringIO()
    bar = _progress.Bar(stream)
    gib = 1 << 30
    bar(_progress.Progress("save", 7, "writing", gib, 4 * gib, 2.0))
    line = stream.getvalue()
    assert line.endswith("save of step 7, writing: #####--------------- 1.00 of 4.00 GiB (25%), 0.50 GiB/s")
    bar(_progress.Progress("save", 7, "done", 4 * gib, 4 * gib, 4.0))
    assert stream.getvalue() == line + "\r\x1b[K"


def test_a_bar_is_shown_on_a_terminal_and_nowhere_else(root, python_environment):
    root.mkdir()
    program = (
        "import numpy, shoal, sys\n"
        f"with shoal.Checkpointer({str(root)!r}, progress=True) as ck:\n"
        "    print(ck._watcher is not None)\n"
        "    ck.save(1, {'w': numpy.zeros(1 << 22)}).committed()\n"
    )
    main_end, other_end = pty.openpty()
    run = {"env": python_environment, "stdout": subprocess.PIPE, "text": True, "timeout": 120}
    shown = subprocess.run([sys.executable, "-c", program], stderr=other_end, **run)
    assert shown.returncode == 0 and shown.stdout == "True\n"
    assert b"save of step 1" in os.read(main_end, 1 << 16)
    hidden = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, **run)
    assert hidden.returncode == 0 and hidden.stdout == "False\n" and hidden.stderr == ""


def test_wrong_values_are_rejected(root):
    root.mkdir()
    with pytest.raises(shoal.InvalidArgument, match="progress is 'yes'"):
        shoal.Checkpointer(root, progress="yes")


def test_saves_and_loads_are_logged_in_one_line_each(checkpointer, caplog):
    with caplog.at_level(logging.INFO, logger="shoal"):
        state = {"w": np.arange(1 << 18, dtype=np.float32)}
        handle = checkpointer.save(1, state)
        handle.committed()
        handle.committed()
        checkpointer.load(1, into=state)
    lines = [each.getMessage() for each in caplog.records if each.levelname == "INFO"]
    begins = ["step 1 is staged", "step 1 is committed", "step 1 is loaded"]
    assert [line.split(":")[0] for line in lines] == begins
    assert "1.0 MiB of this rank" in lines[1] and "after the call of save" in lines[1]


def test_a_second_job_at_a_busy_root_is_told_so(checkpointer, root, python_environment):
    checkpointer.save(1, {"a": np.arange(3)}).committed()
    program = (
        "import shoal\n"
        f"try:\n    shoal.Checkpointer({str(root)!r}, attach_timeout=3)\n"
        "except shoal.Busy as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=python_environment, capture_output=True, text=True, timeout=60
    )
    assert "is in use on this host" in done.stdout, done.stdout + done.stderr
    assert "serves job" in done.stdout and "read_only" in done.stdout
