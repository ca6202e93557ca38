#!/usr/bin/env bash
# A training job under torchrun. Run the same line on every host:
#
#   HOSTS=2 FIRST_HOST=n0 RANKS_PER_HOST=8 ./torchrun.sh TRAINER [ARGUMENT...]
#
# TRAINER is a Python file, or a program. It loads the newest checkpoint if there is one, and calls
# wait_committed for its last save. docs/how-to/recipes.md says what else to prepare.
set -euo pipefail

export SHOAL_ROOT=${SHOAL_ROOT:-/checkpoints/run7}
export SHOAL_TOKEN_FILE=${SHOAL_TOKEN_FILE:-/checkpoints/run7.token}
hosts=${HOSTS:-1}
ranks=${RANKS_PER_HOST:-8}
first_host=${FIRST_HOST:-$(hostname)}
# A job whose trainers fail is started again so often.
restarts_max=${RESTARTS_MAX:-3}

(($# > 0)) || { echo "usage: HOSTS=N FIRST_HOST=NAME $0 TRAINER [ARGUMENT...]" >&2 && exit 2; }
options=(--nproc-per-node "$ranks" --max-restarts "$restarts_max")
if ((hosts == 1)); then
  unset SHOAL_TOKEN_FILE # a job on one host needs none
  options+=(--standalone)
else
  options+=(--nnodes "$hosts" --rdzv-id "$(basename "$SHOAL_ROOT")" --rdzv-backend c10d
    --rdzv-endpoint "$first_host:29400")
fi
[[ $1 == *.py ]] || options+=(--no-python)
ulimit -n "$(ulimit -Hn)"

# Before any trainer starts: find what would stop the job. Nodes of an earlier job end some seconds after its
# trainers, so try again.
for tries in 1 2 3; do
  shoal doctor "$SHOAL_ROOT" --ranks "$ranks" --hosts "$hosts" --coordinator "$first_host:7070" && break
  ((tries < 3)) || exit 1
  sleep 5
done

# torchrun passes SIGTERM on to the trainers, and this script passes it on to torchrun.
torchrun "${options[@]}" "$@" &
launcher=$!
trap 'kill -TERM "$launcher" 2>/dev/null || true' TERM INT
wait "$launcher" || true
while kill -0 "$launcher" 2>/dev/null; do wait "$launcher" || true; done # a signal ends a wait
status=0
wait "$launcher" || status=$?

# The node of this host still writes what the trainers have staged, and ends some seconds after the last of
# them. If this script is all that keeps a container or a service alive, its end would kill the node.
deadline=$((SECONDS + 330)) # --node-deadline-ms is 300 s
while ((SECONDS < deadline)) && shoal status "$SHOAL_ROOT" >/dev/null 2>&1; do sleep 1; done
exit "$status"
