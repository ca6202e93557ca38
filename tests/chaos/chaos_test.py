#!/usr/bin/env python3
"""shoal chaos: a few rounds against the real trainer pass, and each rule of the campaign can be violated.

chaos_test.py SHOAL TRAINER. Status 77: this machine permits no namespaces, TAP or loop devices.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, TRAINER = (os.path.abspath(path) for path in sys.argv[1:3])


def chaos(*arguments: str, trainer: str = TRAINER) -> subprocess.CompletedProcess:
    return subprocess.run(
        [PROGRAM, "chaos", "--seed", "7", "--json", *arguments, "--trainer", trainer],
        capture_output=True,
        text=True,
        timeout=200,
    )


class ChaosTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="shoal-chaos-test-")

    def tearDown(self):
        shutil.rmtree(self.folder)

    def wrapped(self, script: str) -> str:
        """A trainer that runs this script in place of the real one, which is "$TRAINER"."""
        path = os.path.join(self.folder, "trainer")
        with open(path, "w") as file:
            file.write(f"#!/bin/bash\nTRAINER={TRAINER}\n{script}\n")
        os.chmod(path, 0o755)
        return path

    def violations(self, script: str, *arguments: str) -> list[str]:
        end = chaos("--kinds", "none", "--no-flips", *arguments, trainer=self.wrapped(script))
        self.assertEqual(end.returncode, 1, end.stdout + end.stderr)
        result = json.loads(end.stdout)
        shutil.rmtree(result["folder"])
        return result["violations"]

    def assert_violated(self, rule: str, violations: list[str]):
        self.assertTrue(any(line.startswith(rule + ": ") for line in violations), violations)

    def test_survives_a_few_rounds(self):
        end = chaos("--rounds", "6")
        self.assertEqual(end.returncode, 0, end.stdout + end.stderr)
        result = json.loads(end.stdout)
        self.assertEqual(result["rounds"], 6)
        self.assertGreater(result["committed"], 0)
        self.assertGreater(result["checkpoints_audited"], 0)
        self.assertEqual(result["violations"], [])
        self.assertIsNone(result["folder"])

    def test_finds_a_save_that_was_told_and_is_not_there(self):
        script = '"$TRAINER" "$@"; echo "rank $RANK: step 77777: committed after 1 ms"'
        self.assert_violated("told", self.violations(script, "--rounds", "2"))

    def test_finds_ranks_that_were_told_differently(self):
        script = (
            '"$TRAINER" "$@"; [ "$RANK" != 0 ] ||'
            ' echo "rank 9: step 1: not committed: aborted: step 1: for no reason"'
        )
        self.assert_violated("one-decision", self.violations(script, "--rounds", "1"))

    def test_finds_a_load_of_an_old_checkpoint(self):
        script = 'echo "rank $RANK: loaded step 0 (g1a1): nothing"; "$TRAINER" "$@" | grep -v -e loaded -e "no checkpoint"'
        self.assert_violated("latest", self.violations(script, "--rounds", "2"))

    def test_survives_trainers_that_start_their_nodes(self):
        for starter in ("job-id", "torchrun"):
            end = chaos("--rounds", "3", "--starter", starter)
            self.assertEqual(end.returncode, 0, end.stdout + end.stderr)
            result = json.loads(end.stdout)
            self.assertGreater(result["committed"], 0)
            self.assertEqual(result["violations"], [])

    def test_finds_ranks_that_loaded_differently(self):
        script = '"$TRAINER" "$@"; echo "rank 9: loaded step 5 (g1a1): nothing"'
        self.assert_violated("same-load", self.violations(script, "--rounds", "2"))

    def test_finds_a_trainer_that_never_ends(self):
        script = '"$TRAINER" "$@"; sleep 1000'
        self.assert_violated("ends", self.violations(script, "--rounds", "1"))

    def test_finds_saves_that_fail_for_no_reason(self):
        script = '"$TRAINER" "$@" | sed "s/step 2: committed.*/step 2: not committed: for no reason/"'
        self.assert_violated("available", self.violations(script, "--rounds", "2"))

    def test_finds_bytes_of_another_model(self):
        script = 'exec "$TRAINER" "$@" --dtype bf16'
        self.assert_violated("right-bytes", self.violations(script, "--rounds", "2"))

    def test_rejects_unknown_kinds_and_names_the_known_ones(self):
        end = subprocess.run([PROGRAM, "chaos", "--kinds", "fire"], capture_output=True, text=True)
        self.assertEqual(end.returncode, 2)
        self.assertIn("no kind 'fire'; the kinds are kill-trainer, kill-node,", end.stderr)
        self.assertEqual(end.stdout, "")

    def test_prints_a_usage_error_as_json_where_json_is_wanted(self):
        end = subprocess.run([PROGRAM, "chaos", "--json", "--kinds", "fire"], capture_output=True, text=True)
        self.assertEqual(end.returncode, 2)
        out = json.loads(end.stdout)
        self.assertEqual((out["command"], out["json_version"]), ("chaos", 1))
        self.assertEqual(out["error"]["code"], "invalid_argument")
        self.assertIn("no kind 'fire'", out["error"]["message"])


if __name__ == "__main__":
    first = chaos("--rounds", "0")
    if first.returncode == 2:
        print("this machine cannot run shoal chaos:", first.stderr.strip())
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
