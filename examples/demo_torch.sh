#!/usr/bin/env bash
# Trains examples/train_gpt.py on four ranks under torchrun. One run is undisturbed. A second one is killed
# with SIGKILL twice while a checkpoint is being saved, and continues. A third continues the second one on two
# ranks. examples/compare_runs.py compares their losses and states, and draws the curves. `make demo-torch`
# builds what this needs.
#
#   examples/demo_torch.sh BUILD-FOLDER [fsdp|hsdp|tp]...
set -euo pipefail
cd "$(dirname "$0")/.."
readonly build=$1
readonly steps=20
work=$(mktemp -d /tmp/shoal-demo-torch.XXXXXX)
export PYTHONPATH=$build/python OMP_NUM_THREADS=1

train() { # train NAME RANKS ARGUMENT...
  build/venv/bin/python -m torch.distributed.run --standalone --nproc-per-node "$2" examples/train_gpt.py \
    --parallel "$parallel" --root "$folder/$1" --losses "$folder/$1.jsonl" --text ARCHITECTURE.md \
    --steps $steps --save-every 5 "${@:3}" 2>>"$work/log"
}

train_and_be_killed() {
  if train "$@"; then
    echo "the ranks were not killed" >&2
    exit 1
  fi
  "$build/python/shoal/bin/shoal" ls "$folder/$1"
}

demo() { # demo HOW-TO-SHARD
  parallel=$1 folder=$work/$1
  mkdir -p "$folder/undisturbed" "$folder/killed"
  echo "== $parallel: one run of $steps steps, for comparison"
  train undisturbed 4
  echo "-- the same, and SIGKILL to each rank once it has staged step 10: the node completes the checkpoint"
  train_and_be_killed killed 4 --kill-at 10
  cp -r "$folder/killed" "$folder/two-ranks"
  echo "-- again, and SIGKILL at step 15, to one rank before it has staged: step 15 is not committed"
  train_and_be_killed killed 4 --lose-rank-at 15
  echo "-- again, to the end"
  train killed 4
  echo "-- from step 10 to the end on two ranks"
  train two-ranks 2
  build/venv/bin/python examples/compare_runs.py "$folder"
}

trap '[[ $? == 0 ]] || echo "Failed: look at $work/log." >&2' EXIT
for each in "${@:2}"; do
  demo "$each"
done
echo
echo "Look at $work: of each run its root (shoal ls, shoal show) and its losses,"
echo "the curves (*/losses.svg), and the log of torchrun, which reports the kills."
