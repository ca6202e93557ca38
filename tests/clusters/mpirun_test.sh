#!/usr/bin/env bash
# docs/how-to/clusters.md, "mpirun": Open MPI's daemons and ranks on three hosts; the trainers' clients start
# the nodes.
#   mpirun_test.sh BUILD_DIR     status 77: it cannot run here
source "$(dirname "${BASH_SOURCE[0]}")/hosts.sh"

command -v mpirun >/dev/null && command -v orted >/dev/null || skip "Open MPI is not installed (openmpi-bin)"
begin "$1" 240
make_hosts 3
make_token

# In place of ssh: HOST COMMAND...
cat >"$dir/agent" <<AGENT
#!/bin/bash
pids=(${host_pids[*]})
host=\$1
shift
exec nsenter -t "\${pids[\${host#h} + 1]}" -n -m -u -- sh -c "\$*"
AGENT
chmod +x "$dir/agent"

mpi_job() { # RANKS HOSTS COMMAND...
  local ranks=$1 hosts=$2
  shift 2
  on h0 timeout 100 mpirun --allow-run-as-root --mca plm_rsh_agent "$dir/agent" \
    --mca oob_tcp_if_include eth0 --mca btl self -np "$ranks" --host "$hosts" \
    -x SHOAL_ROOT="$dir/root" -x SHOAL_TOKEN_FILE -x MASTER_ADDR=h0 "$@" >>"$dir/mpirun.log" 2>&1
}

mkdir "$dir/root"
mpi_job 6 h0:2,h1:2,h2:2 "$trainer" --save-steps 1-3 --layers 2 || fail "the first job"
expect_committed 3 1
expect_nodes 1 3
# Other ranks, on other hosts, with another sharding; rank 0 is not where the coordinator is.
mpi_job 4 h1:2,h0:2 "$trainer" --load latest --sharding tp --save-steps 4 --layers 2 || fail "the second job"
expect_committed 4 2
finish "mpirun: 6 ranks on 3 hosts saved, 4 ranks on 2 hosts loaded every element"
