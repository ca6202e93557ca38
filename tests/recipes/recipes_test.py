#!/usr/bin/env python3
"""What examples/recipes says is true of the programs and formats that it names.

  recipes_test.py SHOAL TRAINER shell|options|systemd|cron|kubernetes

tests/clusters runs the recipes of launchers. Status 77: a checker is missing, so the test is skipped;
tools/install_peers installs it. With $SHOAL_REQUIRE_PEERS that is a failure.
"""
import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
TREE = Path(__file__).resolve().parents[2]
RECIPES = TREE / "examples/recipes"
SHOAL, TRAINER, PART = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3]
KUBERNETES_VERSIONS = ("1.28", "1.37")  # from 1.27 pods have a label with the uid of their Job


def run(command: list, **options) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, **options)


def scripts() -> list[Path]:
    return [one for one in sorted(RECIPES.rglob("*")) if one.is_file() and one.read_text().startswith("#!")]


class RunTest(unittest.TestCase):
    """Has a root, $folder/run7, with three checkpoints, and $folder/bin with the programs of the recipes."""

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="shoal-recipes-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.root = cls.folder / "run7"
        (cls.folder / "bin").mkdir()
        (cls.folder / "bin/shoal").symlink_to(SHOAL)
        (cls.folder / "bin/shoal-cron").symlink_to(RECIPES / "cron/shoal-cron")
        cls.environment = {
            "PATH": f"{cls.folder}/bin:{os.environ['PATH']}",
            "HOME": str(cls.folder),
            "SHOAL_RUNTIME_DIR": str(cls.folder / "runtime"),
        }
        saved = run(
            [SHOAL, "launch", "--root", cls.root, "--create", "--", TRAINER, "--layers", "1", "--save-steps"]
            + ["1-3", "--train-ms", "0"],
            env=cls.environment,
        )
        if saved.returncode != 0:
            raise AssertionError(saved.stderr)

    def damage(self, path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)

    def shards(self) -> list[Path]:
        return sorted(self.root.rglob("step-00000003/**/*.safetensors"))


class Shell(unittest.TestCase):
    def test_each_script_is_sound(self):
        self.assertGreaterEqual(len(scripts()), 4)
        for script in scripts():
            with self.subTest(script.name):
                self.assertEqual(run(["bash", "-n", script]).stderr, "")
                checked = run(["shellcheck", script])
                self.assertEqual(checked.stdout + checked.stderr, "")

    def test_each_script_without_a_trainer_says_how_it_is_used(self):
        for script in scripts():
            with self.subTest(script.name):
                ended = run([script] if os.access(script, os.X_OK) else ["bash", script])
                self.assertEqual(ended.returncode, 2)
                self.assertIn("usage: ", ended.stderr)


class Options(unittest.TestCase):
    """Every command, option and variable of Shoal that a recipe names exists."""

    def uses(self, text: str) -> list[tuple[str, str]]:
        """Returns (command, option) for each call of shoal; the option is empty for the command itself."""
        text = re.sub(r"\\\n\s*", " ", text)
        # An argument a line, as in manifests.
        text = re.sub(r"\n *- +(?=shoal\b)", "\n", text)
        text = re.sub(r'\n +- +"?(?=[^\s:#]+$)', " ", text, flags=re.M)
        found = []
        for call in re.finditer(r"(?:^|[\s/'\"])shoal (?!shoal-)([a-z][a-z-]+)\b([^\n#|&;`]*)", text):
            command, rest = call[1], call[2].split(" -- ")[0]
            found.append((command, ""))
            found += [(command, option) for option in re.findall(r"(?<=\s)(--[a-z][a-z-]*|-[a-z]\b)", rest)]
        for flags in re.findall(r"NODE_FLAGS=(.*)", text):
            found += [("node", option) for option in re.findall(r"--[a-z-]+", flags)]
        return found

    def test_each_option_is_one_of_its_command(self):
        helps = {}
        seen = set()
        for recipe in sorted(RECIPES.rglob("*")):
            if recipe.is_dir():
                continue
            for command, option in self.uses(recipe.read_text()):
                if command not in helps:
                    shown = run([SHOAL, command, "--help"])
                    self.assertEqual(shown.returncode, 0, f"{recipe.name}: shoal {command} does not exist")
                    helps[command] = shown.stdout
                seen.add((command, option))
                if not option:
                    continue
                listed = rf"(?m)^  (-\w,)?{re.escape(option)}(?![\w-])"
                self.assertRegex(helps[command], listed, f"{recipe.name}: shoal {command} has no {option}")
        # The search itself finds what the recipes have.
        for known in (
            ("doctor", "--ranks"),
            ("gc", "--keep-every"),
            ("launch", "--kill-on-failure"),
            ("node", "--rejoin"),
            ("node", "--world-size"),
            ("status", ""),
            ("verify", "--rate"),
        ):
            self.assertIn(known, seen)

    def test_a_wrong_option_is_found(self):
        self.assertEqual(self.uses("x shoal gc /a --keep-lst 5\n"), [("gc", ""), ("gc", "--keep-lst")])
        self.assertIn(("verify", "--rte"), self.uses("- shoal\n   - verify\n   - /a\n   - --rte\n"))

    def test_each_variable_is_on_the_page_of_settings(self):
        page = (TREE / "docs/reference/settings.md").read_text()
        for recipe in sorted(RECIPES.rglob("*")):
            if recipe.is_file():
                for name in set(re.findall(r"\bSHOAL_[A-Z_]*[A-Z]\b", recipe.read_text())):
                    self.assertIn(f"`{name}`", page, recipe.name)


class Systemd(RunTest):
    def setUp(self):
        self.units = Path(tempfile.mkdtemp(prefix="shoal-units-"))
        self.addCleanup(shutil.rmtree, self.units)
        for unit in (RECIPES / "systemd").iterdir():
            text = unit.read_text().replace("/usr/bin/shoal", str(SHOAL))
            (self.units / unit.name.replace("@.", "@run7.")).write_text(text)

    def command(self, unit: str) -> str:
        """Returns the command of a unit for the root of this test."""
        text = (RECIPES / f"systemd/shoal-{unit}@.service").read_text()
        found = re.search(r"^ExecStart=(.*)", text, re.M)[1]
        replaced = {"/usr/bin/shoal": SHOAL, "%i": "run7", "/etc/shoal": self.folder}
        replaced |= {"/checkpoints": self.folder, "/var/lib": self.folder}
        for name, value in replaced.items():
            found = found.replace(name, str(value))
        return found

    def verify(self) -> subprocess.CompletedProcess:
        units = [str(one) for one in sorted(self.units.iterdir())]
        environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
        return run(["systemd-analyze", "verify", "--man=no", *units], env=environment)

    def complaints(self) -> str:
        ours = {one.name for one in self.units.iterdir()}
        said = self.verify().stderr.splitlines()
        return "\n".join(line for line in said if any(name in line for name in ours))

    def test_systemd_reads_each_unit_without_a_complaint(self):
        self.assertEqual(len(list(self.units.iterdir())), 6)
        verified = self.verify()
        self.assertEqual(verified.returncode, 0, verified.stderr)
        self.assertEqual(self.complaints(), "")

    def test_systemd_finds_a_wrong_key(self):
        unit = self.units / "shoal-gc@run7.service"
        unit.write_text(unit.read_text().replace("ProtectClock=", "ProtectClok="))
        self.assertIn("ProtectClok", self.complaints())

    def test_the_commands_run_confined_as_far_as_systemd_rates_it(self):
        for unit, exposure_max in (("node", 3.0), ("verify", 2.0), ("gc", 2.0)):
            path = self.units / f"shoal-{unit}@run7.service"
            rated = run(
                ["systemd-analyze", "security", "--offline=true", "--no-pager"]
                + [f"--threshold={int(exposure_max * 10)}", str(path)]
            )
            self.assertEqual(rated.returncode, 0, rated.stdout + rated.stderr)

    def test_the_commands_of_maintenance_run(self):
        for unit in ("verify", "gc"):
            ended = run(["sh", "-c", self.command(unit)], env=self.environment)
            self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_the_node_serves_trainers_and_ends_well_on_sigterm(self):
        token = self.folder / "run7.token"
        token.write_text("0123456789abcdef")
        token.chmod(0o600)
        (self.folder / "shoal-run7").mkdir()
        ready, write_ready = os.pipe()
        flags = f"--coordinate --listen 127.0.0.1:0 --world-size 1 --ready-fd {write_ready}"
        environment = {**self.environment, "SHOAL_JOB_ID": "run7-a", "NODE_FLAGS": flags}
        environment["SHOAL_ROOT"] = str(self.root)
        command = ["sh", "-c", "exec " + self.command("node")]
        with subprocess.Popen(
            command, env=environment, pass_fds=[write_ready], stderr=subprocess.DEVNULL
        ) as node:
            os.close(write_ready)
            try:
                with open(ready, encoding="utf-8") as lines:
                    self.assertIn("ready", lines.readline())
                saved = run(
                    [TRAINER, "--layers", "1", "--load", "latest", "--saves", "1", "--train-ms", "0"],
                    env={**environment, "SHOAL_START_NODE": "0"},
                )
                self.assertEqual(saved.returncode, 0, saved.stderr)
                self.assertIn("committed", saved.stdout)
            finally:
                node.terminate()
            self.assertEqual(node.wait(100), 0)

    def test_a_failure_is_reported_and_a_timer_starts_each_service_of_maintenance(self):
        for unit in ("node", "verify", "gc"):
            text = (RECIPES / f"systemd/shoal-{unit}@.service").read_text()
            self.assertIn("\nOnFailure=shoal-failed@%n.service\n", text)
        for unit in ("verify", "gc"):
            when = re.search(r"OnCalendar=(.*)", (RECIPES / f"systemd/shoal-{unit}@.timer").read_text())[1]
            self.assertEqual(run(["systemd-analyze", "calendar", when]).returncode, 0)


class Cron(RunTest):
    RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))

    def lines(self) -> tuple[dict[str, str], list[tuple[list[str], str, str]]]:
        """Returns the variables, and the five fields, the user and the command of each line. Includes those
        that the user enables: `#` and a digit."""
        variables, jobs = {}, []
        for line in (RECIPES / "cron/shoal.crontab").read_text().splitlines():
            line = re.sub(r"^#(?=\d)", "", line)
            if not line or line.startswith("#"):
                continue
            if assignment := re.fullmatch(r"([A-Z]+)=(\S+)", line):
                variables[assignment[1]] = assignment[2]
            else:
                *fields, user, command = line.split(None, 6)
                jobs.append((fields, user, command))
        return variables, jobs

    def job(self, name: str) -> str:
        (found,) = [command for _, _, command in self.lines()[1] if f"shoal-cron {name} " in command]
        return found.replace("/checkpoints", str(self.folder))

    def cron(self, command: str) -> subprocess.CompletedProcess:
        return run([self.lines()[0]["SHELL"], "-c", command], env=self.environment)

    def test_cron_reads_each_line(self):
        variables, jobs = self.lines()
        self.assertEqual(variables["MAILTO"], "root")
        self.assertEqual(len(jobs), 3)
        for fields, user, command in jobs:
            self.assertEqual(user, "shoal")
            self.assertNotIn("%", command)  # a line break to cron
            for field, (low, high) in zip(fields, self.RANGES, strict=True):
                if field != "*":
                    self.assertTrue(low <= int(field) <= high, f"{field} in {fields}")

    def test_nothing_is_deleted_before_the_user_enables_it(self):
        text = (RECIPES / "cron/shoal.crontab").read_text()
        enabled = [line for line in text.splitlines() if line and not line.startswith("#")]
        self.assertEqual([line for line in enabled if "shoal gc" in line], [])
        dry = self.job("gc-run7").split("gc-run7 ", 1)[1] + " --dry-run"
        self.assertIn("#   " + dry.replace(str(self.folder), "/checkpoints") + "\n", text)
        self.assertEqual(self.cron(dry).returncode, 0)

    def test_a_command_that_succeeds_is_silent(self):
        for name in ("verify-run7", "verify-all-run7", "gc-run7"):
            ended = self.cron(self.job(name))
            self.assertEqual((ended.returncode, ended.stdout + ended.stderr), (0, ""))
        self.assertTrue(list((self.root / "verified").iterdir()))

    def test_a_damaged_checkpoint_is_printed_for_the_mail(self):
        shard = self.shards()[0]
        self.damage(shard)
        ended = self.cron(self.job("verify-run7"))
        self.damage(shard)  # the bit is back
        self.assertEqual(ended.returncode, 1)
        self.assertIn("failed with status 1", ended.stderr)
        self.assertIn(shard.name, ended.stderr)

    def test_a_root_that_is_gone_is_printed_for_the_mail(self):
        ended = self.cron(self.job("gc-run7").replace("/run7 ", "/run8 "))
        self.assertEqual(ended.returncode, 2)
        self.assertIn("run8", ended.stderr)

    def test_a_command_does_not_run_beside_itself(self):
        runtime = self.folder / "runtime"
        runtime.mkdir(mode=0o700, exist_ok=True)
        with open(runtime / "cron-verify-run7.lock", "a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            ended = self.cron(self.job("verify-run7"))
        self.assertEqual(ended.returncode, 75)
        self.assertIn("still runs", ended.stderr)
        self.assertEqual(self.cron(self.job("verify-run7")).returncode, 0)


class Kubernetes(RunTest):
    @classmethod
    def setUpClass(cls):
        import kubernetes_validate
        import pod

        cls.pod, cls.checker = pod, kubernetes_validate
        cls.manifests = sorted((RECIPES / "kubernetes").glob("*.yaml"))
        super().setUpClass()

    def check(self, document: dict) -> None:
        for version in KUBERNETES_VERSIONS:
            self.checker.validate(document, version, strict=True)

    def documents(self) -> list[dict]:
        return [document for manifest in self.manifests for document in self.pod.load(manifest)]

    def find(self, kind: str, name: str) -> dict:
        return self.pod.find(self.documents(), kind, name)

    def test_each_document_agrees_with_the_schema(self):
        kinds = []
        for document in self.documents():
            self.check(document)
            kinds.append(document["kind"])
        self.assertEqual(
            sorted(kinds),
            ["CronJob", "CronJob", "Job", "NetworkPolicy", "PersistentVolumeClaim", "Secret", "Service"],
        )

    def test_a_wrong_field_is_found(self):
        def misspelt(job):
            spec = job["spec"]["template"]["spec"]
            spec["terminationGracePeriod"] = spec.pop("terminationGracePeriodSeconds")

        def of_another_type(job):
            job["spec"]["completions"] = "two"

        def deep(job):
            (container,) = job["spec"]["template"]["spec"]["containers"]
            container["volumeMounts"][0]["path"] = "/checkpoints"

        for change in (misspelt, of_another_type, deep):
            job = self.find("Job", "run7")
            change(job)
            with self.assertRaises(self.checker.ValidationError, msg=change.__name__):
                self.check(job)

    def test_names_lead_to_what_is_defined(self):
        service = self.find("Service", "run7")
        job = self.find("Job", "run7")
        pods = job["spec"]["template"]["spec"]
        self.assertEqual(service["spec"]["selector"], {"job-name": job["metadata"]["name"]})
        self.assertEqual(pods["subdomain"], service["metadata"]["name"])
        (container,) = pods["containers"]
        self.assertIn("run7-0.run7:7070", container["args"][0])
        variables = {one["name"]: one.get("value") for one in container["env"]}
        self.assertEqual(int(variables["HOSTS"]), job["spec"]["completions"])
        self.assertEqual(int(variables["HOSTS"]), job["spec"]["parallelism"])
        for document in self.documents():
            if document["kind"] in ("Job", "CronJob"):
                spec = self.pod.pod_template(document)["spec"]
                (container,) = spec["containers"]
                mounted = {one["name"] for one in container["volumeMounts"]}
                self.assertEqual({one["name"] for one in spec["volumes"]}, mounted)
                for volume in spec["volumes"]:
                    if "persistentVolumeClaim" in volume:
                        self.find("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])

    def test_nothing_is_deleted_before_the_user_enables_it(self):
        self.assertIs(self.find("CronJob", "run7-gc")["spec"]["suspend"], True)
        self.assertNotIn("suspend", self.find("CronJob", "run7-verify")["spec"])

    def test_the_token_is_the_users_to_make(self):
        secret = self.find("Secret", "run7-token")
        self.assertNotIn("data", secret)
        ((key, value),) = secret["stringData"].items()
        self.assertNotRegex(key, r"^[-._a-zA-Z0-9]+$")  # Kubernetes permits no other key
        self.assertEqual(value, "")

    def test_the_limit_of_memory_includes_what_saves_stage(self):
        pods = self.find("Job", "run7")["spec"]["template"]["spec"]
        (container,) = pods["containers"]
        variables = {one["name"]: one.get("value") for one in container["env"]}
        staging = int(variables["SHOAL_STAGING_MEMORY"].removesuffix("GiB"))
        volumes = {one["name"]: one for one in pods["volumes"]}
        shared = int(volumes["shm"]["emptyDir"]["sizeLimit"].removesuffix("Gi"))
        limit = int(container["resources"]["limits"]["memory"][:-2])
        trainers = 96  # the comment of the manifest
        self.assertGreaterEqual(limit, trainers + staging + shared + 1)

    def test_a_save_in_flight_may_end_before_the_pod_is_killed(self):
        pods = self.find("Job", "run7")["spec"]["template"]["spec"]
        shown = run([SHOAL, "node", "--help"]).stdout
        node_deadline_ms = int(re.search(r"--node-deadline-ms MS \[(\d+)\]", shown)[1])
        self.assertGreater(pods["terminationGracePeriodSeconds"] * 1000, node_deadline_ms)

    def test_the_commands_of_maintenance_run(self):
        for name in ("verify", "gc"):
            ended = run(
                [sys.executable, Path(__file__).with_name("pod.py"), RECIPES / "kubernetes/maintain.yaml"]
                + [f"CronJob/run7-{name}", "--volume", self.folder],
                env=self.environment,
            )
            self.assertEqual(ended.returncode, 0, ended.stderr)


def is_missing(checker: str) -> bool:
    return shutil.which(checker) is None and importlib.util.find_spec(checker) is None


if __name__ == "__main__":
    checkers = {"shell": "shellcheck", "systemd": "systemd-analyze", "kubernetes": "kubernetes_validate"}
    if PART in checkers and is_missing(checkers[PART]):
        print(f"skipped: {checkers[PART]} is missing; tools/install_peers installs it")
        sys.exit(1 if os.environ.get("SHOAL_REQUIRE_PEERS") else 77)
    sys.path.insert(0, str(Path(__file__).parent))
    case = {one.__name__.lower(): one for one in (Shell, Options, Systemd, Cron, Kubernetes)}[PART]
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
