#!/usr/bin/env bash
# A training job under Open MPI's mpirun, started again when its trainers fail:
#
#   HOSTFILE=hosts ./mpirun.sh TRAINER [ARGUMENT...]
#
# Each line of the host file is `HOST slots=RANKS`. The trainer loads the newest checkpoint if there is one,
# and calls wait_committed for its last save. docs/how-to/recipes.md says what else to prepare.
set -euo pipefail

export SHOAL_ROOT=${SHOAL_ROOT:-/checkpoints/run7}
export SHOAL_TOKEN_FILE=${SHOAL_TOKEN_FILE:-/checkpoints/run7.token}
hostfile=${HOSTFILE:-hosts}
# A job whose trainers fail is started again so often.
restarts_max=${RESTARTS_MAX:-3}

(($# > 0)) || { echo "usage: HOSTFILE=hosts $0 TRAINER [ARGUMENT...]" >&2 && exit 2; }
hosts=$(grep -cE '^[[:space:]]*[^#[:space:]]' "$hostfile")
# The first host coordinates. No variable of mpirun names it.
MASTER_ADDR=${MASTER_ADDR:-$(awk '!/^[[:space:]]*(#|$)/ { print $1; exit }' "$hostfile")}
export MASTER_ADDR
ranks=$(sed -n 's/^[^#]*slots=\([0-9]*\).*/\1/p' "$hostfile" | head -n 1)
ulimit -n "$(ulimit -Hn)"

# mpirun passes a variable on only if it is named: every setting of Shoal and of its object store, and the
# coordinator's host.
options=(--hostfile "$hostfile" -x MASTER_ADDR)
for variable in $(compgen -e SHOAL_; compgen -e AWS_); do options+=(-x "$variable"); done

# shellcheck disable=SC2016 # each host expands it
# On every host, before any trainer starts: find what would stop the job. Nodes of an earlier job end some
# seconds after its trainers, so try again.
check='for _ in 1 2 3; do shoal doctor --ranks "$0" && exit 0; sleep 5; done; exit 1'
mpirun "${options[@]}" --map-by ppr:1:node -np "$hosts" bash -c "$check" "${ranks:-1}"

# Ctrl-C and SIGTERM end the job: nothing starts it again. Ctrl-C reaches mpirun by itself; SIGTERM may reach
# only this script, which passes it on. mpirun is in the background because bash runs a trap only after the
# command in the foreground has ended.
launcher=
trap '[[ -z $launcher ]] || wait "$launcher" || true; exit 130' INT
end_launcher() {
  [[ -z $launcher ]] || { kill -TERM "$launcher" 2>/dev/null && wait "$launcher"; } || true
  exit 143
}
trap end_launcher TERM
for ((restarts = 0; ; ++restarts)); do
  status=0
  mpirun "${options[@]}" "$@" <&0 &
  launcher=$!
  wait "$launcher" || status=$?
  launcher=
  ((status != 0 && restarts < restarts_max)) || exit "$status"
  echo "The trainers ended with status $status: restart $((restarts + 1)) of $restarts_max." >&2
  # A folder whose storage is not mounted would look like a new run. A root s3://BUCKET/PREFIX is not mounted.
  [[ $SHOAL_ROOT == s3://* || -e $SHOAL_ROOT/ROOT_ID ]] || {
    echo "$SHOAL_ROOT is gone: is its storage mounted?" >&2
    exit 2
  }
done
