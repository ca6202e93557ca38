"""Compares the runs of examples/demo_torch.sh, and draws their losses.

    python examples/compare_runs.py FOLDER

FOLDER has the journals (examples/train_gpt.py) undisturbed.jsonl, killed.jsonl and two-ranks.jsonl. On as
many ranks all losses must be equal bit for bit. On two ranks the loaded state must be equal bit for bit, and
the losses may differ by TOLERANCE, because the ranks add the same numbers in another order.
"""

import json
import pathlib
import sys

TOLERANCE = 1e-5
WIDTH, HEIGHT, MARGIN = 640, 400, 48


def read(folder: pathlib.Path, run: str) -> list[dict]:
    return [json.loads(line) for line in (folder / f"{run}.jsonl").read_text().splitlines()]


def losses_of(lines: list[dict]) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]


def check_states(run: str, lines: list[dict], saved: dict[int, str]) -> list[int]:
    """Every state that a run has loaded must be the one that was saved. Returns the steps."""
    loaded = [line for line in lines if "loaded" in line]
    for line in loaded:
        if line["digest"] != saved[line["loaded"]]:
            sys.exit(f"{run}: the state loaded from step {line['loaded']} is not the one that was saved")
    return [line["loaded"] for line in loaded]


def compare(folder: pathlib.Path) -> None:
    runs = {run: read(folder, run) for run in ("undisturbed", "killed", "two-ranks")}
    expected = dict(losses_of(runs["undisturbed"]))
    saved = {line["saved"]: line["digest"] for line in runs["undisturbed"] if "saved" in line}
    last = max(expected)

    steps = check_states("killed", runs["killed"], saved)
    killed = losses_of(runs["killed"])
    differing = [(step, loss, expected[step]) for step, loss in killed if loss != expected[step]]
    if differing or killed[-1][0] != last or len(steps) != 2:
        sys.exit(f"killed: loaded {steps}; losses that differ: {differing[:3]}")
    print(f"Four ranks, killed twice: continued after steps {steps}. All {len(killed)} losses are, bit for")
    print(f"bit, those of the undisturbed run: {expected[1]:.4f} first, {expected[last]:.4f} in step {last}.")

    steps = check_states("two-ranks", runs["two-ranks"], saved)
    two = losses_of(runs["two-ranks"])
    largest = max(abs(loss - expected[step]) for step, loss in two)
    if largest > TOLERANCE or two[-1][0] != last or len(steps) != 1:
        sys.exit(f"two-ranks: loaded {steps}; the losses differ by up to {largest}, {TOLERANCE} is allowed")
    print(f"Two ranks: the state loaded from step {steps[0]} is, bit for bit, the one that four ranks saved.")
    print(f"The losses differ by at most {largest:.1e} (allowed: {TOLERANCE}).")


def draw(folder: pathlib.Path) -> None:
    """Writes losses.svg: one line for each run, offset so that equal ones can be told apart."""
    runs = {run: losses_of(read(folder, run)) for run in ("undisturbed", "killed", "two-ranks")}
    every = [point for points in runs.values() for point in points]
    last, low, high = max(s for s, _ in every), min(v for _, v in every), max(v for _, v in every)

    def at(step: int, loss: float, shift: int) -> str:
        x = MARGIN + (WIDTH - 2 * MARGIN) * (step - 1) / max(last - 1, 1)
        y = MARGIN + (HEIGHT - 2 * MARGIN) * (high - loss) / ((high - low) or 1)
        return f"{x:.1f},{y + shift:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif"'
        f' font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{MARGIN}" y="{HEIGHT - 12}">steps 1 to {last}; losses {high:.3f} (top) to {low:.3f}; equal'
        " curves are drawn 3 pixels apart</text>",
    ]
    for i, (run, colour) in enumerate(zip(runs, ("#444444", "#d62728", "#1f77b4"))):
        parts.append(f'<text x="{WIDTH - 160}" y="{MARGIN + 16 * i}" fill="{colour}">{run}</text>')
        pieces: list[list[tuple[int, float]]] = []
        for point in runs[run]:
            if not pieces or point[0] <= pieces[-1][-1][0]:  # the run has gone back to a checkpoint
                pieces.append([])
            pieces[-1].append(point)
        for n, piece in enumerate(pieces):
            points = " ".join(at(step, loss, 3 * i + n) for step, loss in piece)
            parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>')
    (folder / "losses.svg").write_text("\n".join([*parts, "</svg>", ""]))


if __name__ == "__main__":
    of_runs = pathlib.Path(sys.argv[1])
    draw(of_runs)
    compare(of_runs)
