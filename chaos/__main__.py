"""shoal chaos: attacks real jobs, and judges what their trainers were told by the bytes of the root."""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NoReturn

from audit import ABORTED, COMMITTED, Attempt, Model, attempts_of, audit_checkpoint
from failures import KINDS, SELF_REPAIRED, Attack, Failure, Storage, draw_failures, flip_a_bit, lose_catalogs
from hosts import CannotRun, Host
from job import ATTACH_TIMEOUT_S, NODE_DEADLINE_S, SHARDINGS, STARTERS, History, Job, Plan
from network import Switch

PATIENCE_S = 25.0  # of a job whose failures have ended, besides the time that it trains
START_S = 0.3  # until a job saves
SAVE_S = 0.02  # that a save takes, if nothing hinders it
MODES = ["collective-free", "collective-free", "rank-local", "collective"]

EPILOG = """\
Each round runs one job on up to --hosts hosts of this machine: nodes and trainers of a tiny model whose every
element is known. shoal launch starts them, or the trainers start the nodes, as under torchrun. While the job
runs, failures hit its processes, hosts, network and storage.
Afterwards the root is read by its documented format alone, with none of Shoal's code, and these rules are
checked:

  right-bytes   a committed checkpoint holds every element of its step, exactly
  told          a save that any rank was told is committed exists, until retention deletes it
  one-decision  no rank is told that a save is committed, and another that it is aborted
  latest        a load finds a checkpoint not older than the last one that was told to be committed
  same-load     all ranks of a job load the same checkpoint
  ends          a job ends soon after its last failure: no call of a trainer waits for ever
  available     a save is committed if no failure should have prevented it

A round with a violation leaves its folder: logs, protocol logs, the root. Rounds draw from the seed what they
do and when; real processes differ in their timing, so the same seed may need several tries.

Storage is an ext4 file system of its own, which can fill up, hang, and lose what was not synced. The network
is a switch in this program. Needs root, iproute2, util-linux, e2fsprogs and Python 3.11.

Exit status: 0 no violation; 1 a violation; 2 this machine cannot run it."""


class Campaign:
    def __init__(self, options: argparse.Namespace, folder: str):
        self.options, self.folder = options, folder
        self.model = Model()
        self.storage = Storage(folder)
        self.switch = Switch(options.seed)
        self.hosts: list[Host] = []
        self.plans: dict[int, Plan] = {}  # by generation
        self.told: set[Attempt] = set()
        self.damaged: set[Attempt] = set()  # by a flipped bit
        self.deletes = False  # some job had a retention rule
        self.audited: set[Attempt] = set()
        self.saves = self.commits = 0
        self.hits: dict[str, int] = {}
        try:
            for number in range(options.hosts):
                self.hosts.append(Host(number, folder, self.switch))
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        for host in self.hosts:
            host.kill()
        self.switch.close()
        self.storage.close()

    def draw_plan(self, number: int, rng: random.Random) -> Plan:
        hosts = rng.randint(1, self.options.hosts)
        ranks = rng.randint(1, self.options.ranks_per_host)
        sharding = rng.choice([name for name, fits in SHARDINGS.items() if fits(hosts * ranks)])
        return Plan(
            number,
            hosts,
            ranks,
            sharding,
            self.options.mode or rng.choice(MODES),
            rng.randint(3, 12),
            rng.choice([0, 20, 100, 250]),
            rng.random() < 0.6,
            rng.choice([None, None, None, 2]),
            rng.random() < 0.5,
            self.options.starter or rng.choice(STARTERS),
        )

    def round(self, number: int) -> list[str]:
        """Runs one job under failures. Returns violations."""
        rng = random.Random(f"{self.options.seed}/{number}")
        plan = self.draw_plan(number, rng)
        duration = START_S + plan.saves * (plan.train_ms / 1000 + SAVE_S)
        failures = draw_failures(rng, self.options.kinds, plan.hosts, duration)
        damage = self.damage_at_rest(rng, plan)
        newest = max(
            (a for a, state in attempts_of(self.storage.root).items() if state != ABORTED), default=None
        )
        plan.falls_back = plan.falls_back or newest in self.damaged
        began = time.monotonic()
        job = Job(
            plan,
            self.hosts,
            os.path.join(self.folder, f"round-{number}"),
            self.storage.root,
            self.options.program,
            self.options.trainer,
            self.model,
            f"chaos-{self.options.seed}-{number}",
            self.options.transport,
        )
        attack = Attack(failures, job, self.hosts, self.switch, self.storage, rng)
        violations = self.watch(job, attack, plan)
        attack.end()
        if job.is_running():
            job.kill()
        # Otherwise the next job begins while nodes of this one still run.
        if plan.starter != "launch" and not attack.power_is_off and rng.random() < 0.25:
            if not job.wait_for_nodes(NODE_DEADLINE_S + 15):
                violations += self.still_runs(job, "after its trainers")
                job.kill()
        for kind in attack.done:
            self.hits[kind] = self.hits.get(kind, 0) + 1
        if attack.power_is_off:
            for host in self.hosts:
                host.kill()
            self.storage.power_on()
            self.storage.free()
        for host in self.hosts:
            if not host.is_up:
                host.start()
        history = job.history()
        violations += self.judge(plan, job, history, attack, failures)
        with open(os.path.join(job.folder, "round.json"), "w") as file:
            json.dump(
                {
                    "plan": vars(plan),
                    "failures": [str(failure) for failure in failures],
                    "damage": damage,
                    "log": attack.log,
                    "violations": violations,
                    "statuses": job.statuses(),
                },
                file,
                indent=1,
            )
        if not self.options.json:
            what = "; ".join(damage + [line.split(": ", 1)[1] for line in attack.log]) or "nothing"
            print(
                f"round {number}: {plan}; {what}; {len(history.committed)} of {plan.saves} committed,"
                f" {time.monotonic() - began:.1f} s",
                flush=True,
            )
        if not violations and not self.options.keep:
            shutil.rmtree(job.folder)
        return violations

    def damage_at_rest(self, rng: random.Random, plan: Plan) -> list[str]:
        """Between two jobs: a flipped bit in a file of the root, or lost catalogs. Returns what was done."""
        if not self.options.flips or rng.random() > 0.25:
            return []
        if any("node" in line[1:2] for host in self.hosts for line in host.processes().values()):
            return []  # nodes of the job before are not at rest
        if rng.random() < 0.2:
            lose_catalogs(self.hosts)
            return ["the runtime folders were lost"]
        root = self.storage.root
        files = sorted(
            os.path.relpath(os.path.join(folder, name), root)
            for folder, _, names in os.walk(root)
            for name in names
        )
        small = [
            name for name in files if name.startswith(SELF_REPAIRED) and "/" in name or name == "ROOT_ID"
        ]
        newest = max(
            (a for a, state in attempts_of(root).items() if state == COMMITTED and a not in self.damaged),
            default=None,
        )
        if newest is not None and plan.falls_back and rng.random() < 0.5:
            folder = newest.folder(root)
            names = [
                name
                for name in sorted(os.listdir(folder))
                if name.endswith((".safetensors", "manifest.shoal")) and "-of-" not in name
            ]
            name = os.path.relpath(os.path.join(folder, rng.choice(names)), root)
            self.damaged.add(newest)
        elif small:
            name = rng.choice(small)
        else:
            return []
        flip_a_bit(rng, os.path.join(root, name))
        return [f"a bit of {name} flipped"]

    def watch(self, job: Job, attack: Attack, plan: Plan) -> list[str]:
        """Waits until the job has ended, or its patience. Returns violations of `ends`."""
        crippled = ("kill-host", "kill-launcher", "power-cut")
        over_since = crippled_since = None
        patience = PATIENCE_S + plan.saves * plan.train_ms / 1000
        if plan.starter != "launch":
            # Nobody reports the end of a trainer that never attached. Launchers like torchrun end the others.
            crippled += ("kill-trainer",)
            patience += ATTACH_TIMEOUT_S
        while job.is_running():
            time.sleep(0.02)
            now = time.monotonic()
            if attack.power_is_off and attack.is_over():
                return []
            has_lost_host = (
                any(kind in attack.done for kind in crippled)
                or job.statuses()[0] not in (None, 0)
                or job.lost_a_node_that_did_not_serve()
            )
            if crippled_since is None and has_lost_host:
                crippled_since = now
            if over_since is None and attack.is_over():
                over_since = now
            if crippled_since is not None and attack.is_over() and now > crippled_since + 4:
                # The manager of a cluster ends a job that has lost a host.
                job.terminate()
                if not job.wait(NODE_DEADLINE_S + 15):
                    return self.still_runs(job, "after it was asked to end")
                return []
            if crippled_since is None and over_since is not None and now > over_since + patience:
                violations = self.still_runs(job, "after the last failure ended")
                job.terminate()
                job.wait(NODE_DEADLINE_S + 15)
                return violations
        return []

    def still_runs(self, job: Job, when: str) -> list[str]:
        running = {
            host.name: {what: len(pids) for what, pids in job.processes(host).items() if pids}
            for host in job.hosts
        }
        return [f"ends: the job still runs long {when}: {running}"]

    def judge(
        self, plan: Plan, job: Job, history: History, attack: Attack, failures: list[Failure]
    ) -> list[str]:
        violations = []
        attempts = attempts_of(self.storage.root)
        self.deletes = self.deletes or plan.keep_last is not None
        self.saves += plan.saves
        self.commits += len(history.committed)
        # What was loaded.
        if len(set(history.loaded.values())) > 1 or (history.loaded and history.started_anew):
            violations.append(
                f"same-load: ranks loaded {history.loaded}, and began anew: {history.started_anew}"
            )
        sound = {told for told in self.told if told not in self.damaged}
        for rank, loaded in history.loaded.items():
            if any(told > loaded for told in sound):
                violations.append(
                    f"latest: rank {rank} loaded {loaded}, and {max(sound)} was told to be committed"
                )
        if history.started_anew and sound:
            violations.append(
                f"latest: ranks {history.started_anew} found no checkpoint, and {max(sound)} was told"
            )
        # What was told.
        if history.generation is not None:
            self.plans[history.generation] = plan
            for step in history.committed:
                self.told.add(Attempt(history.generation, 1, step))
        for step, ranks in history.committed.items():
            aborted = history.aborted(step)
            if aborted:
                violations.append(
                    f"one-decision: step {step} is committed for {sorted(ranks)}, aborted for {aborted}"
                )
        for told in sorted(self.told):
            state = attempts.get(told)
            if state == COMMITTED or told in self.damaged:
                continue
            newer = sum(1 for other, its in attempts.items() if other > told and its == COMMITTED)
            if state == ABORTED or not (self.deletes and newer >= 2):
                violations.append(f"told: {told} was told to be committed, and its decision is {state}")
        # What the root holds.
        for attempt, state in attempts.items():
            if state == COMMITTED and attempt not in self.audited:
                violations += self.judge_bytes(attempt)
        violations += self.judge_availability(plan, job, history, attack, failures)
        return violations

    def judge_bytes(self, attempt: Attempt) -> list[str]:
        if attempt in self.damaged:
            return []
        plan = self.plans.get(attempt.generation)
        if plan is None:
            return [f"right-bytes: {attempt} is of a generation that no job had"]
        self.audited.add(attempt)
        try:
            found = audit_checkpoint(self.storage.root, attempt, self.model, plan.ranks)
        except FileNotFoundError as error:
            found = [str(error)]
        if found and attempts_of(self.storage.root).get(attempt) != COMMITTED:
            return []  # a node that still runs has deleted it meanwhile
        return [f"right-bytes: {attempt}: {what}" for what in found]

    def judge_all(self) -> list[str]:
        """Every checkpoint of the root once more, by the auditor and by shoal verify."""
        violations = [
            violation
            for attempt, state in attempts_of(self.storage.root).items()
            if state == COMMITTED
            for violation in self.judge_bytes(attempt)
        ]
        return violations + self.verify_by_shoal()

    def judge_availability(
        self, plan: Plan, job: Job, history: History, attack: Attack, failures: list[Failure]
    ) -> list[str]:
        if not all(failure.is_harmless for failure in failures):
            return []
        killed = [failure.host for failure in failures if failure.kind == "kill-node"]
        if plan.starter != "launch" and len(killed) != len(set(killed)):
            return []  # a client waits before it starts a second node
        if plan.mode == "collective" and failures:
            return []  # its saves wait for a coordinator, and fail where another one replaces it
        if job.lost_a_node_that_did_not_serve():
            return []
        all_ranks = set(range(plan.ranks))
        lacking = sum(1 for step_ranks in history.committed.values() if step_ranks == all_ranks)
        if lacking == plan.saves and all(status == 0 for status in job.statuses()):
            return []
        causes = sorted(
            {cause for ranks in history.failed.values() for cause in ranks.values()} | set(history.errors)
        )
        return [
            f"available: {lacking} of {plan.saves} saves were committed for all ranks though nothing should"
            f" have prevented them; statuses {job.statuses()}; {'; '.join(causes[:4])}"
        ]

    def verify_by_shoal(self) -> list[str]:
        """Shoal's own judgement of the root must agree with the auditor's."""
        if self.damaged or not self.plans:
            return []
        end = subprocess.run(
            [self.options.program, "verify", self.storage.root, "--all"], capture_output=True, text=True
        )
        return (
            []
            if end.returncode == 0
            else [f"right-bytes: shoal verify --all: {end.stdout[-400:]}{end.stderr}"]
        )


def seconds(text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600}
    if text and text[-1] in units:
        return float(text[:-1]) * units[text[-1]]
    return float(text)


def kinds(text: str) -> list[str]:
    chosen = text.split(",") if text != "none" else []
    unknown = [kind for kind in chosen if kind not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no kind '{unknown[0]}'; the kinds are {', '.join(KINDS)}")
    return chosen


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="shoal chaos",
        description="Attacks real jobs on this machine, and audits what they saved.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--for",
        dest="time",
        type=seconds,
        default=60,
        metavar="TIME",
        help="start rounds for this long, as in 90s, 10m, 8h (default: 60s)",
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="end after this many rounds")
    parser.add_argument("--seed", type=int, help="what rounds draw from (default: by chance, and printed)")
    parser.add_argument(
        "--hosts",
        type=int,
        default=3,
        choices=range(1, 33),
        metavar="N",
        help="most hosts of a job (default: 3)",
    )
    parser.add_argument(
        "--ranks-per-host",
        type=int,
        default=2,
        choices=range(1, 17),
        metavar="N",
        help="most ranks of a host (default: 2)",
    )
    parser.add_argument(
        "--kinds",
        type=kinds,
        default=list(KINDS),
        metavar="KIND,...",
        help=f"which failures, or none (default: all): {', '.join(KINDS)}",
    )
    parser.add_argument(
        "--no-flips",
        dest="flips",
        action="store_false",
        help="flip no bits in files of the root between jobs, and lose no catalogs",
    )
    parser.add_argument(
        "--starter",
        choices=STARTERS,
        help="who starts trainers: shoal launch, or a launcher whose trainers start the nodes, which gives a "
        "job id or, as torchrun, none (default: drawn)",
    )
    parser.add_argument("--mode", choices=sorted(set(MODES)), help="mode of all saves (default: drawn)")
    parser.add_argument(
        "--transport",
        choices=["auto", "tcp", "ucx"],
        default="auto",
        help="transport between nodes (default: auto)",
    )
    parser.add_argument("--keep-going", action="store_true", help="continue after a violation")
    parser.add_argument("--keep", action="store_true", help="keep the folder of every round")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--program", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--trainer", required=True, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.program = os.path.abspath(options.program)
    options.trainer = [os.path.abspath(options.trainer)]
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 32)
    return options


def print_error(as_json: bool, code: str, message: str) -> int:
    """Prints why nothing was done, as `shoal` does (docs/reference/json.md). Returns the exit status."""
    print(f"shoal chaos: {message}", file=sys.stderr)
    if as_json:
        error = {"code": code, "message": message}
        print(json.dumps({"command": "chaos", "json_version": 1, "error": error}))
    return 2


class Parser(argparse.ArgumentParser):
    """Prints errors of the arguments in the same way."""

    def error(self, message: str) -> NoReturn:
        sys.exit(print_error("--json" in sys.argv, "invalid_argument", f"{message} (see shoal chaos --help)"))


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if os.geteuid() != 0:
        why = "it makes hosts out of namespaces, and mounts a file system: run it as root"
        return print_error(options.json, "refused", why)
    if not os.access(options.trainer[0], os.X_OK):
        return print_error(options.json, "not_found", f"{options.trainer[0]}: this installation lacks it")
    folder = tempfile.mkdtemp(prefix="shoal-chaos-")
    os.chmod(folder, 0o755)
    campaign = None
    violations: list[str] = []
    number, began = 0, time.monotonic()
    try:
        campaign = Campaign(options, folder)
        if not options.json:
            print(f"seed {options.seed}, folder {folder}", flush=True)
        while time.monotonic() - began < options.time and (options.rounds is None or number < options.rounds):
            number += 1
            found = campaign.round(number)
            for violation in found:
                print(f"violation in round {number}: {violation}", file=sys.stderr, flush=True)
            violations += found
            if found and not options.keep_going:
                break
        violations += campaign.judge_all()
        if violations:
            shutil.copytree(campaign.storage.root, os.path.join(folder, "root"), dirs_exist_ok=True)
    except CannotRun as error:
        return print_error(options.json, "unavailable", f"this machine cannot run it: {error}")
    finally:
        if campaign is not None:
            campaign.close()
        if not violations and not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    report(options, campaign, folder, number, violations, time.monotonic() - began)
    return 1 if violations else 0


def report(
    options: argparse.Namespace,
    campaign: Campaign,
    folder: str,
    rounds: int,
    violations: list[str],
    elapsed: float,
) -> None:
    if options.json:
        print(
            json.dumps(
                {
                    "command": "chaos",
                    "json_version": 1,
                    "seed": options.seed,
                    "rounds": rounds,
                    "seconds": round(elapsed, 1),
                    "saves": campaign.saves,
                    "committed": campaign.commits,
                    "checkpoints_audited": len(campaign.audited),
                    "failures": campaign.hits,
                    "violations": violations,
                    "folder": folder if violations or options.keep else None,
                }
            )
        )
        return
    hits = ", ".join(f"{kind} {count}" for kind, count in sorted(campaign.hits.items())) or "no failure"
    print(
        f"{rounds} rounds in {elapsed:.0f} s: {campaign.commits} of {campaign.saves} saves committed,"
        f" {len(campaign.audited)} checkpoints audited; {hits}"
    )
    if violations:
        print(f"{len(violations)} violations; seed {options.seed}; everything is in {folder}")
    else:
        print("no violation")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
