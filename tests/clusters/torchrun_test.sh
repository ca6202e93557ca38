#!/usr/bin/env bash
# docs/how-to/clusters.md, "torchrun", by examples/recipes/torchrun.sh: an agent a host, and the trainers'
# clients start the nodes. After a rank was killed, torchrun's second rendezvous is a generation of its own.
#   torchrun_test.sh BUILD_DIR     status 77: it cannot run here
# $TORCHRUN: the program; default: that of PATH.
source "$(dirname "${BASH_SOURCE[0]}")/hosts.sh"

torchrun=$(command -v "${TORCHRUN:-torchrun}") ||
  skip "torchrun is not installed (PyTorch; \$TORCHRUN names it)"
begin "$1" 420
make_hosts 2
make_token
cluster_env+=("SHOAL_ROOT=$dir/root" OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore)
mkdir "$dir/root"

torch_job() { # RESTARTS COMMAND...
  local restarts=$1 i failed=0
  local -a agents=()
  shift
  for i in 0 1; do
    on "h$i" timeout 180 env PATH="${shoal%/*}:${torchrun%/*}:$PATH" HOSTS=2 FIRST_HOST=h0 RANKS_PER_HOST=2 \
      RESTARTS_MAX="$restarts" PET_LOCAL_ADDR="$network.$((i + 1))" "$recipes/torchrun.sh" "$@" \
      >>"$dir/torchrun-h$i.log" 2>&1 &
    agents+=($!)
  done
  for i in "${agents[@]}"; do wait "$i" || failed=1; done
  return "$failed"
}

torch_job 0 "$trainer" --save-steps 1-2 --layers 2 || fail "the first job"
expect_committed 2 1
expect_nodes 1 2

# The same rendezvous id again, as torchrun's users do; rank 1 dies once, after it has staged step 4. What the
# first workers had in flight is theirs: their successors are another generation.
# Which incarnation it is, a file says: torchrun's restart counts differ from agent to agent.
cat >"$dir/dies-once" <<WORKER
#!/bin/bash
if [[ ! -e "$dir/has-died" ]]; then
  "$trainer" --load latest --save-steps 3-9 --layers 2 --wait --kill-after-stage 4 --kill-rank 1
  status=\$?
  ((status == 0)) || touch "$dir/has-died"
  exit \$status
fi
exec "$trainer" --load latest --save-steps 10 --layers 2 --sharding tp
WORKER
chmod +x "$dir/dies-once"
torch_job 1 "$dir/dies-once" || fail "the second job, which has a rank killed"
expect_committed 3 2
expect_committed 10 3
finish "torchrun: 4 ranks on 2 hosts saved and loaded every element, restarted in a generation of its own"
