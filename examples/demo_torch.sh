#!/usr/bin/env bash
# Trains examples/train_gpt.py on four ranks under torchrun, kills all of them with SIGKILL while a checkpoint
# is being saved, and continues. The losses must be, bit for bit, those of a run that nothing has interrupted.
# `make demo-torch` builds what it needs.
#
#   examples/demo_torch.sh BUILD-FOLDER [fsdp|hsdp|tp]
set -euo pipefail
cd "$(dirname "$0")/.."
readonly build=$1 parallel=${2:-fsdp}
readonly steps=20 killed_at=10
work=$(mktemp -d /tmp/shoal-demo-torch.XXXXXX)

export PYTHONPATH=$build/python OMP_NUM_THREADS=1
train() { # train ROOT LOSSES RANKS ARGUMENT...
  build/venv/bin/torchrun --standalone --nproc-per-node "$3" examples/train_gpt.py --parallel "$parallel" \
    --root "$1" --text ARCHITECTURE.md --losses "$2" --steps $steps --save-every 5 "${@:4}" 2>>"$work/log"
}

mkdir "$work/undisturbed" "$work/killed"
echo "One run of $steps steps on 4 ranks ($parallel), for comparison ..."
train "$work/undisturbed" "$work/undisturbed.jsonl" 4
echo "The same run, which ends with SIGKILL on all ranks while step $killed_at is being saved ..."
if train "$work/killed" "$work/killed.jsonl" 4 --kill-at $killed_at; then
  echo "the ranks were not killed" >&2
  exit 1
fi
echo "Its root then holds:"
"$build/python/shoal/bin/shoal" ls "$work/killed"
echo "Again, without the kill ..."
train "$work/killed" "$work/killed.jsonl" 4

build/venv/bin/python - "$work/undisturbed.jsonl" "$work/killed.jsonl" <<'PYTHON'
import json
import sys

undisturbed, killed = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
expected = {line["step"]: line["loss"] for line in undisturbed}
differing = [line for line in killed if expected[line["step"]] != line["loss"]]
if differing or killed[-1]["step"] != undisturbed[-1]["step"]:
    sys.exit(f"the losses differ: {differing[:3]}")
print(f"All {len(killed)} losses of the killed run are bit for bit those of the undisturbed one;")
print(f"the last is {killed[-1]['loss']:.4f}, the first was {undisturbed[0]['loss']:.4f}.")
PYTHON
echo "Look at $work: the roots, the losses, and the log."
