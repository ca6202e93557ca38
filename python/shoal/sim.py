"""The simulator and the planner of Shoal: what saves would cost on a cluster, before a job runs there.

    import shoal

    result = shoal.sim.run(ranks=4096, model="llama3-405b", sweep={"mode": "all"})
    print(result["simulations"][0]["saves"][0]["committed_ns"]["max"] / 1e9)
    shoal.sim.frame(result)                      # a row for each save and load, where pandas is installed
    print(shoal.plan(model="llama3-70b", ranks=2048, spares=4)["takeaway"])

The functions run the programs `shoal sim` and `shoal plan` with their options, and return the JSON that these
print: docs/reference/json.md describes it. They need no Checkpointer, no root and no torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import typing

from . import _errors, _program
from ._errors import InvalidArgument

if typing.TYPE_CHECKING:
    import pandas  # type: ignore[import-not-found, import-untyped]

__all__ = ["frame", "plan", "rows", "run"]

Result = dict[str, typing.Any]
Progress = typing.Union[bool, typing.Callable[[str], object]]

_OF_OUTPUT = ("help", "json", "csv", "progress", "show_failures", "show_profile")
_RESULTS_AFTER = (0, 1)  # 1: a save was aborted or an oracle was violated, as the result says


def run(
    scenario: str | os.PathLike[str] | None = None,
    *,
    sweep: typing.Mapping[str, typing.Any] | None = None,
    progress: Progress = False,
    **options: typing.Any,
) -> Result:
    """Runs the production roles on virtual time, as `shoal sim` does, and returns its JSON as a dict.

    scenario: the name of a built-in scenario, or the path of a TOML file.
    sweep: runs one simulation for each value, or for all combinations of several keys:
        {"ranks": [512, 4096], "mode": "all"}.
    progress: True prints the progress to stderr; a function is called with each line of it.
    options: those of `shoal sim`, with "_" for "-": ranks=4096, mesh={"dp": 32, "tp": 8, "pp": 16},
        arrival_skew_ms=5, load=True. A True is an option without a value, False and None leave it out.

    A simulation whose saves were aborted, or in which an oracle was violated, is a result: see "outcome" and
    "violation". Raises InvalidArgument or NotFound for options that `shoal sim` rejects, with its text.
    Blocks; Ctrl-C ends it. Any thread may call it.
    """
    arguments = [] if scenario is None else [f"--scenario={os.fspath(scenario)}"]
    for key, values in (sweep or {}).items():
        separator = ";" if key == "mesh" else ","
        each = values if isinstance(values, (list, tuple, range)) else [values]
        arguments.append(f"--sweep={key}={separator.join(map(_text, each))}")
    return _run("sim", [*arguments, *_arguments_of(options)], progress)


def plan(*, progress: Progress = False, **options: typing.Any) -> Result:
    """Computes how often a job should save and what it then gets done, as `shoal plan` does, and returns its
    JSON as a dict. "takeaway" says in a sentence what to do.

    options: those of `shoal plan`, with "_" for "-": model="llama3-70b", ranks=2048, mtbf_host_hours=3700,
        interval=["5min", "1h"], no_baselines=True.
    progress: as for `run`, and the errors are the same.
    """
    return _run("plan", _arguments_of(options), progress)


def rows(result: typing.Mapping[str, typing.Any]) -> list[dict[str, typing.Any]]:
    """The table of a result as a list of dicts, one for each save, load and restart of a simulation, or for
    each case and interval of a plan. The keys are paths, such as "scenario.ranks" and "committed_ns.p99"."""
    out = []
    for number, simulation in enumerate(result.get("simulations", ())):
        about = {"simulation": number, **_flat(simulation["scenario"], "scenario.")}
        for action, all_of in (("save", "saves"), ("load", "loads"), ("restart", "restarts")):
            for i, each in enumerate(simulation.get(all_of, ())):
                out.append({**about, "action": action, "number": i, **_flat(each)})
    for case in result.get("cases", ()):
        about = {"profile": case["profile"], "saver": case["saver"]}
        for each in case.get("intervals", ()):
            chosen = case.get("chosen_interval_ns") == each["interval_ns"]
            out.append({**about, "is_chosen": chosen, **_flat(each)})
    return out


def frame(result: typing.Mapping[str, typing.Any]) -> "pandas.DataFrame":
    """The `rows` of a result as a DataFrame. Raises InvalidArgument if pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise InvalidArgument(
            "pandas is not installed: install it, or use shoal.sim.rows, which returns a list of dicts"
        ) from None
    return pandas.DataFrame(rows(result))


def _flat(value: typing.Mapping[str, typing.Any], prefix: str = "") -> dict[str, typing.Any]:
    """Numbers and texts by their path. Lists are left out, and the bars of histograms with them."""
    out: dict[str, typing.Any] = {}
    for key, each in value.items():
        if isinstance(each, dict):
            out.update(_flat(each, f"{prefix}{key}."))
        elif not isinstance(each, list):
            out[prefix + key] = each
    return out


def _text(value: typing.Any) -> str:
    if isinstance(value, typing.Mapping):
        return ",".join(f"{key}={_text(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple, range)):
        return ",".join(map(_text, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _arguments_of(options: typing.Mapping[str, typing.Any]) -> list[str]:
    out = []
    for name, value in options.items():
        if name in _OF_OUTPUT:
            raise InvalidArgument(f"{name} changes what the program prints: leave it out")
        option = "--" + name.replace("_", "-")
        if value is True:
            out.append(option)
        elif value is not None and value is not False:
            out.append(f"{option}={_text(value)}")
    return out


def _run(command: str, arguments: list[str], progress: Progress) -> Result:
    show = (lambda line: print(line, file=sys.stderr)) if progress is True else progress or None
    if show is not None and not callable(show):
        raise InvalidArgument(f"progress is {progress!r}: True, False or a function of a line is needed")
    program = _program.path()
    lines = []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as written:
        with _errors.of_system(f"run {program}"):
            process = subprocess.Popen(
                [program, command, "--json", *(["--progress"] if show else []), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
            )
        try:
            assert process.stderr is not None
            for line in process.stderr:
                lines.append(line.rstrip("\n"))
                if show is not None:
                    show(lines[-1])
            status = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            process.stderr.close()
            process.wait()
        written.seek(0)
        return _result_of(command, written.read(), lines, status)


def _result_of(command: str, text: str, lines: list[str], status: int) -> Result:
    try:
        result = json.loads(text)
    except ValueError:
        said = [line.removeprefix("shoal: ") for line in lines if line.startswith("shoal: ")]
        message = said[-1] if said else f"`shoal {command}` ended with status {status}"
        raise (InvalidArgument(message) if status == 2 else _errors.Unavailable(message)) from None
    error = result.get("error")
    if error is not None:
        raise _errors.error_of(error["code"].replace("_", " "), error["message"])
    if status not in _RESULTS_AFTER:
        raise _errors.Unavailable(f"`shoal {command}` ended with status {status} before it was complete")
    return typing.cast(Result, result)
