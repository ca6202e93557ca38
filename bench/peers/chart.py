#!/usr/bin/env python3
"""Draws the tables of vs_peers.py as one SVG: bars of blocked, durable and load, on a logarithmic scale.

    chart.py PAGE.md FILE.svg      PAGE has tables as vs_peers.py prints them; other text in it is skipped
"""

from __future__ import annotations

import math
import re
import sys
import typing

COLUMNS = ("blocked", "durable", "load")
COLORS = {"shoal": "#0b6e8f", "other": "#b9b9b9"}
NAME_WIDTH, BAR_WIDTH, GAP, ROW, HEADING = 190, 200, 60, 15, 46

Rows = dict[str, dict[str, typing.Any]]  # by library; seconds by column
Panel = tuple[str, Rows]  # with its title

_TITLE = re.compile(r"\d+ × .* tensors, (tmpfs|disk):$")
_TIME = re.compile(r"([\d.]+) (ms|s)\b")


def panels_of(page: str) -> list[Panel]:
    """The tables of a page. A library that did not run to its end has no times."""
    panels: list[Panel] = []
    title = ""
    for line in page.splitlines():
        if _TITLE.match(line):
            title = line.rstrip(":")
            panels.append((title, {}))
        elif line.startswith("| ") and title and not line.startswith("| library"):
            name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            times = [_TIME.match(cell) for cell in cells[:3]]
            if all(times):
                seconds = [float(each[1]) / (1e3 if each[2] == "ms" else 1) for each in times if each]
                panels[-1][1][name] = dict(zip(COLUMNS, seconds))
        elif line.startswith("#"):
            title = ""
    return [panel for panel in panels if panel[1]]


def text_seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.1f} s"


def _text(x: float, y: float, text: str, more: str = "") -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.0f}" y="{y:.0f}"{more}>{escaped}</text>'


def svg(panels: list[Panel]) -> str:
    """All bars have the same scale, so that tables can be compared; the least time is a short bar."""
    times = [row[each] for _, rows in panels for row in rows.values() for each in COLUMNS if each in row]
    least, most = min(times), max(times)
    span = math.log(most / least) or 1.0
    out, y = [], 0.0
    for title, rows in panels:
        out.append(_text(0, y + 16, title, ' font-weight="bold"'))
        for i, column in enumerate(COLUMNS):
            out.append(_text(NAME_WIDTH + i * (BAR_WIDTH + GAP), y + 34, column, ' fill="#555"'))
        y += HEADING
        for name, row in rows.items():
            out.append(_text(NAME_WIDTH - 8, y + 9, name, ' text-anchor="end"'))
            color = COLORS["shoal" if name.startswith("shoal") else "other"]
            for i, column in enumerate(COLUMNS):
                if column not in row:
                    continue
                x = NAME_WIDTH + i * (BAR_WIDTH + GAP)
                width = 4 + (BAR_WIDTH - 4) * math.log(row[column] / least) / span
                out.append(f'<rect x="{x}" y="{y:.0f}" width="{width:.1f}" height="11" fill="{color}"/>')
                out.append(_text(x + width + 4, y + 9, text_seconds(row[column]), ' fill="#555"'))
            y += ROW
        y += ROW
    scale = "Logarithmic scale: a bar is longer by the same for each doubling."
    out.append(_text(0, y + 9, scale, ' fill="#555"'))
    width = NAME_WIDTH + len(COLUMNS) * (BAR_WIDTH + GAP)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {width + 16} {y + 20:.0f}"'
    style = ' font-family="sans-serif" font-size="10.5">'
    paper = '<rect x="-8" width="100%" height="100%" fill="white"/>'
    return "\n".join([head + style, paper, *out, "</svg>", ""])


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1]) as stream:
        panels = panels_of(stream.read())
    if not panels:
        print(f"chart: {sys.argv[1]} has no table of vs_peers.py", file=sys.stderr)
        return 1
    with open(sys.argv[2], "w") as stream:
        stream.write(svg(panels))
    return 0


if __name__ == "__main__":
    sys.exit(main())
