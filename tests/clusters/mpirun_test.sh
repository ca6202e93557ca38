#!/usr/bin/env bash
# docs/how-to/clusters.md, "mpirun", by examples/recipes/mpirun.sh: Open MPI's daemons and ranks on three
# hosts; the trainers' clients start the nodes.
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

cluster_env+=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent="$dir/agent"
  OMPI_MCA_oob_tcp_if_include=eth0 OMPI_MCA_btl=self SHOAL_ROOT="$dir/root")

mpi_job() { # HOSTS COMMAND...: on these hosts, the first of which coordinates
  printf '# of the test\n' >"$dir/hostfile"
  printf '%s slots=2\n' $1 >>"$dir/hostfile"
  shift
  on h0 timeout 100 env HOSTFILE="$dir/hostfile" "$recipes/mpirun.sh" "$@" >>"$dir/mpirun.log" 2>&1
}

mkdir "$dir/root"
mpi_job 'h0 h1 h2' "$trainer" --save-steps 1-3 --layers 2 || fail "the first job"
expect_committed 3 1
expect_nodes 1 3
# Other ranks, on other hosts, with another sharding; rank 0 is not where mpirun is.
mpi_job 'h1 h0' "$trainer" --load latest --sharding tp --save-steps 4 --layers 2 || fail "the second job"
expect_committed 4 2
# A rank dies once, and the recipe starts the job again: another generation.
cat >"$dir/dies-once" <<WORKER
#!/bin/bash
if [[ ! -e "$dir/has-died" ]]; then
  [[ \$OMPI_COMM_WORLD_RANK != 1 ]] || { touch "$dir/has-died" && exit 7; }
  exec sleep 60
fi
exec "$trainer" --load latest --save-steps 5 --layers 2
WORKER
chmod +x "$dir/dies-once"
mpi_job 'h0 h1' "$dir/dies-once" || fail "the third job, which has a rank that fails"
grep -q 'status 7: restart 1 of 3' "$dir/mpirun.log" || fail "mpirun.sh does not report its restart"
expect_committed 5 3
finish "mpirun: 6 ranks on 3 hosts saved, 4 ranks on 2 hosts loaded every element, a failed job was restarted"
