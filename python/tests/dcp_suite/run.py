#!/usr/bin/env python3
"""Runs PyTorch's own tests of torch.distributed.checkpoint with Shoal's storages in place of DCP's. With
--calls, DCP's save, async_save and load are those of shoal.torch too.

    PYTHONPATH=build/release/python build/venv/bin/python python/tests/dcp_suite/run.py FOLDER [FILE ...]

FOLDER: a source tree of PyTorch, of about the version that is installed. FILE: one of its tests below
test/distributed/checkpoint; without, all that save or load through a storage. Prints a line for each test
that does not pass, and the counts of each file. Tests that need GPUs are skipped by themselves.
"""

import argparse
import collections
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ET

STORAGE_WORDS = ("FileSystemWriter", "FileSystemReader", "checkpoint_id", "storage_writer", "storage_reader")
OTHER_STORAGES = ("test_fsspec", "test_hf_", "test_quantized_hf", "test_consolidate", "_experimental")


def uses_a_storage(path):
    if any(word in str(path) for word in OTHER_STORAGES):
        return False
    text = path.read_text()
    return any(word in text for word in STORAGE_WORDS)


def run(path, timeout, calls):
    here = pathlib.Path(__file__).resolve().parent
    report = pathlib.Path(f"/tmp/dcp-suite-{os.getpid()}.xml")
    environment = dict(os.environ)
    environment["SHOAL_DCP_SUITE"] = "calls" if calls else "storages"
    environment["PYTHONPATH"] = f"{here}:{environment.get('PYTHONPATH', '')}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [f"--junitxml={report}", str(path)]
    try:
        subprocess.run(command, env=environment, cwd=path.parent, timeout=timeout, capture_output=True)
    except subprocess.TimeoutExpired:
        return [("the file", "failed", f"did not end within {timeout} s")]
    if not report.exists():
        return [("the file", "failed", "cannot be imported")]
    results = []
    for case in ET.parse(report).iter("testcase"):
        outcome, text = "passed", ""
        for child in case:
            if child.tag in ("failure", "error", "skipped"):
                outcome = "skipped" if child.tag == "skipped" else "failed"
                text = (child.get("message") or "") + (child.text or "")
        results.append((f"{case.get('classname', '').split('.')[-1]}.{case.get('name')}", outcome, text))
    report.unlink()
    return results


def cause_of(text):
    """The last line of a report that names an exception."""
    lines = [line.strip(" E") for line in text.splitlines() if "Error" in line or "Exception" in line]
    return lines[-1][:160] if lines else text.strip().splitlines()[-1][:160] if text.strip() else ""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="a source tree of PyTorch")
    parser.add_argument("files", nargs="*", help="below test/distributed/checkpoint")
    parser.add_argument("--calls", action="store_true", help="with the calls of shoal.torch")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a file")
    options = parser.parse_args()
    tests = options.folder / "test" / "distributed" / "checkpoint"
    if not tests.is_dir():
        parser.error(f"{tests} does not exist: FOLDER must be a source tree of PyTorch")
    paths = [tests / name for name in options.files]
    paths = paths or sorted(filter(uses_a_storage, tests.rglob("test_*.py")))
    total = collections.Counter()
    for path in paths:
        results = run(path, options.timeout, options.calls)
        counts = collections.Counter(outcome for _, outcome, _ in results)
        total += counts
        print(f"{path.relative_to(tests)}: {dict(counts)}", flush=True)
        for name, outcome, text in results:
            if outcome == "failed":
                print(f"    {name}: {cause_of(text)}", flush=True)
    print(f"all: {dict(total)}")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
