"""The program `shoal` of the Python package, and the command of that name, which runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "shoal")


def own() -> str:
    """The program that the package contains, unless SHOAL_NODE_PROGRAM names another one; empty if none."""
    return _OWN if not os.environ.get("SHOAL_NODE_PROGRAM") and os.access(_OWN, os.X_OK) else ""


def path() -> str:
    """The program to run."""
    return own() or os.environ.get("SHOAL_NODE_PROGRAM") or "shoal"


def why_not_found(root: str) -> str:
    """Why the program finds no root there; empty if there is one, or if it cannot tell."""
    try:
        ended = subprocess.run(
            [path(), "ls", "--json", "--last=1", root],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        error = json.loads(ended.stdout).get("error", {})
    except (OSError, ValueError):
        return ""
    return str(error["message"]) if error.get("code") == "not_found" else ""


def main() -> None:
    try:
        os.execv(_OWN, ["shoal", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{_OWN}: {error.strerror}")
