#!/usr/bin/env python3
"""The auditor of shoal chaos finds what is wrong with a root, and nothing with a sound one.

audit_test.py SHOAL TRAINER: makes roots with a real job, then damages copies of them.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../chaos"))

from audit import ABORTED, COMMITTED, Attempt, Model, attempts_of, audit_checkpoint  # noqa: E402
from job import History  # noqa: E402

PROGRAM, TRAINER = (os.path.abspath(path) for path in sys.argv[1:3])
RANKS = 4


def save(root: str, sharding: str, mode: str) -> None:
    command = [
        PROGRAM,
        "launch",
        "-n",
        str(RANKS),
        "--root",
        root,
        "--create",
        "--",
        TRAINER,
        *Model().arguments(),
        "--save-steps",
        "1-2",
        "--sharding",
        sharding,
        "--mode",
        mode,
        "--wait",
    ]
    environment = {**os.environ, "SHOAL_RUNTIME_DIR": root + ".run"}
    end = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
    if end.returncode != 0:
        raise AssertionError(end.stderr)


class AuditTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="shoal-audit-")
        cls.sound = os.path.join(cls.folder, "sound")
        save(cls.sound, "fsdp+tp", "collective-free")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def setUp(self):
        self.root = os.path.join(self.folder, "root")
        shutil.copytree(self.sound, self.root)
        self.attempt = Attempt(1, 1, 2)
        self.shard = os.path.join(self.attempt.folder(self.root), "rank-00001.safetensors")

    def tearDown(self):
        shutil.rmtree(self.root)

    def judge(self) -> list[str]:
        return audit_checkpoint(self.root, self.attempt, Model(), RANKS)

    def assert_wrong(self, what: str):
        wrong = self.judge()
        self.assertTrue(any(what in line for line in wrong), f"{what!r} not in {wrong}")

    def header(self) -> tuple[dict, bytes]:
        with open(self.shard, "rb") as file:
            content = file.read()
        length = struct.unpack_from("<Q", content)[0]
        return json.loads(content[8 : 8 + length]), content[8 + length :]

    def write(self, header: dict, data: bytes):
        text = json.dumps(header).encode()
        with open(self.shard, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)

    def test_finds_nothing_wrong_with_any_sharding_and_mode(self):
        for sharding in ("fsdp", "tp", "replicas", "fsdp+tp", "hsdp", "pipeline"):
            for mode in ("collective-free", "rank-local", "collective"):
                root = os.path.join(self.folder, f"{sharding}-{mode}")
                save(root, sharding, mode)
                self.assertEqual(set(attempts_of(root)), {Attempt(1, 1, 1), Attempt(1, 1, 2)})
                for attempt in attempts_of(root):
                    self.assertEqual(
                        audit_checkpoint(root, attempt, Model(), RANKS), [], f"{sharding} {mode}"
                    )

    def test_finds_one_flipped_bit_of_each_piece(self):
        header, data = self.header()
        for key, piece in header.items():
            begin, end = piece.get("data_offsets", (0, 0))
            if begin == end:
                continue
            changed = bytearray(data)
            changed[(begin + end) // 2] ^= 4
            self.write(header, bytes(changed))
            self.assertTrue(self.judge(), key)

    def test_finds_a_file_of_another_step(self):
        shutil.copy(os.path.join(Attempt(1, 1, 1).folder(self.root), "rank-00001.safetensors"), self.shard)
        self.assert_wrong("not those of step 2")

    def test_finds_a_file_that_is_missing(self):
        os.remove(self.shard)
        self.assert_wrong("elements are in no file")
        self.assert_wrong("no file holds rng@rank1")

    def test_finds_a_piece_at_another_place(self):
        header, data = self.header()
        sharding = json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])
        name = next(key for key, place in sharding.items() if any(place["saved_offsets"]))
        sharding[name]["saved_offsets"] = [0] * len(sharding[name]["saved_offsets"])
        header["__metadata__"]["DCP_SHARDING_INFO"] = json.dumps(sharding)
        self.write(header, data)
        self.assert_wrong("not those of step 2")
        self.assert_wrong("elements are in no file")

    def test_finds_another_shape_and_a_tensor_that_nobody_saved(self):
        header, data = self.header()
        sharding = json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])
        first, second = [key for key, place in sharding.items() if len(place.get("global_shape", [])) == 2][
            :2
        ]
        sharding[first]["global_shape"][0] += 1
        sharding[second]["logical_fqn"] = "model.stranger"
        header["__metadata__"]["DCP_SHARDING_INFO"] = json.dumps(sharding)
        self.write(header, data)
        self.assert_wrong("and should be")
        self.assert_wrong("which no trainer has saved")

    def test_finds_a_header_that_cannot_be_read(self):
        with open(self.shard, "r+b") as file:
            file.seek(20)
            file.write(b"\xff")
        self.assert_wrong("its header cannot be read")

    def test_reads_the_state_of_decisions(self):
        decision = os.path.join(self.attempt.folder(self.root), "manifest.shoal")
        with open(decision, "r+b") as file:
            file.seek(12)
            file.write(struct.pack("<I", ABORTED))
        self.assertEqual(attempts_of(self.root), {Attempt(1, 1, 1): COMMITTED, Attempt(1, 1, 2): ABORTED})
        os.truncate(decision, 20)
        self.assertEqual(attempts_of(self.root)[Attempt(1, 1, 2)], 0)
        os.remove(decision)
        self.assertNotIn(Attempt(1, 1, 2), attempts_of(self.root))

    def test_reads_what_trainers_print(self):
        history = History()
        history.read(
            "2026-11-27 12:00:57.653 h1 I job a, generation 32, epoch 33, root /r\n"
            "rank 1: loaded step 149 (g29a2): 58.4 KiB in 30.9 ms; checked all 19477 elements\n"
            "rank 0: no checkpoint: starts at the beginning\n"
            "rank 1: step 150 (first): staged 57.3 KiB, blocked 10.1 ms\n"
            "rank 1: step 150: committed after 128.4 ms: 63.3 KiB in 2 files\n"
            "rank 1: step 151: not committed: aborted: step 151: rank 0: its trainer ended\n"
            "rank 1: aborted: 1 of 2 saves failed\n"
            "rank 0: step 151: not committed: earlier save failed: rank 0, step 151: the save of step 150"
            " failed: aborted: rank 1; this save was staged nevertheless\n"
        )
        self.assertEqual(set(history.aborted(151)), {1})
        self.assertEqual(history.aborted(150), {})
        self.assertEqual(history.generation, 32)
        self.assertEqual(history.loaded, {1: Attempt(29, 2, 149)})
        self.assertEqual(history.started_anew, {0})
        self.assertEqual(history.staged, {150: {1}})
        self.assertEqual(history.committed, {150: {1}})
        self.assertEqual(history.failed[151][1], "aborted: step 151: rank 0: its trainer ended")
        self.assertEqual(list(history.failed), [151])
        self.assertEqual(history.errors, ["rank 1: aborted: 1 of 2 saves failed"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
