"""The command `shoal` of the Python package: runs the program that the package contains."""

from __future__ import annotations

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "shoal")
    try:
        os.execv(program, ["shoal", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{program}: {error.strerror}")
