"""What a training thread in pure Python loses while a save is written. docs/explanation/performance.md.

    PYTHONPATH=build/release/python build/venv/bin/python bench/python/gil.py [ROUNDS] [MIB]

The main thread computes in Python alone. In each round it does so once without a save, and once from the
return of `save` until the checkpoint is committed, while another thread waits in `committed`. For comparison
it does so while a process without Shoal writes and syncs a file of the same size: that costs a processor and
memory bandwidth too, but cannot take the interpreter's lock. The rounds alternate, so that other load on the
machine hits all three alike.

Prints one JSON object of medians. `loss` is by wall time, and needs a machine that is otherwise idle.
`others` is the processor time of all other threads of this process for each second of the computing thread:
they can have held the interpreter's lock no longer than that, whatever else the machine does.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

import shoal

CHUNK = 20_000  # operations between two looks: about 1 ms


def compute_until(is_over):
    """Operations for each second of wall time; processor time of other threads for each second of that of
    this one; seconds."""
    begun, begun_cpu, begun_all = time.perf_counter(), time.thread_time(), time.process_time()
    chunks, value = 0, 0
    while not is_over():
        for i in range(CHUNK):
            value = (value * 31 + i) & 0xFFFF
        chunks += 1
    seconds = time.perf_counter() - begun
    cpu = time.thread_time() - begun_cpu
    return chunks * CHUNK / seconds, (time.process_time() - begun_all - cpu) / max(cpu, 1e-9), seconds


def after(seconds):
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= end


WRITER = "import os,sys\nf=os.open(sys.argv[1],os.O_CREAT|os.O_WRONLY|os.O_TRUNC)\nb=bytes(1<<20)\n" + (
    "for _ in range(int(sys.argv[2])): os.write(f,b)\nos.fsync(f)\n"
)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    mib = int(sys.argv[2]) if len(sys.argv) > 2 else 256
    found = {"idle": [], "save": [], "other_process": []}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", ".")) as folder:
        with shoal.Checkpointer(folder, node={"keep_last": 1}) as ck:
            state = {"w": np.zeros(mib << 18, np.float32)}
            ck.save(0, state).committed()
            length = 0.3
            for step in range(1, rounds + 1):
                found["idle"].append(compute_until(after(length)))
                state["w"][:] = step
                handle = ck.save(step, state)
                waiter = threading.Thread(target=handle.committed)
                waiter.start()
                found["save"].append(compute_until(handle.done))
                length = found["save"][-1][2]
                waiter.join()
                writer = subprocess.Popen([sys.executable, "-S", "-c", WRITER, f"{folder}/file", str(mib)])
                found["other_process"].append(compute_until(lambda: writer.poll() is not None))
    out = {"rounds": rounds, "mib": mib}
    for name, runs in found.items():
        out[f"{name}_operations_per_s"] = round(statistics.median(run[0] for run in runs))
        out[f"{name}_others"] = round(statistics.median(run[1] for run in runs), 4)
        out[f"{name}_seconds"] = round(statistics.median(run[2] for run in runs), 3)
    for name in ("save", "other_process"):
        pairs = [1 - run[0] / idle[0] for run, idle in zip(found[name], found["idle"])]
        out[f"{name}_loss"] = round(statistics.median(pairs), 4)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
