#!/usr/bin/env bash
# docs/how-to/clusters.md, "Slurm": a Slurm of our own, slurmctld and a slurmd a host, and steps over several
# hosts; the trainers' clients start the nodes. At the end examples/recipes/slurm.sbatch.
#   slurm_test.sh BUILD_DIR     status 77: it cannot run here
source "$(dirname "${BASH_SOURCE[0]}")/hosts.sh"

PATH=$PATH:/usr/sbin
for program in slurmctld slurmd srun sbatch scontrol munged; do
  command -v "$program" >/dev/null || skip "$program is not installed (slurm-wlm, munge)"
done
[[ $(id -u) == 0 ]] || skip "slurmd must be run as root"
begin "$1" 300
make_hosts 3
make_token
cluster_env+=("SLURM_CONF=$dir/slurm.conf")

# munge and Slurm distrust folders in which others may write.
private=$dir/slurm
mkdir -m 0755 "$private"
cat >"$dir/slurm.conf" <<CONF
ClusterName=shoal
SlurmctldHost=h0($network.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$private/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
SlurmctldPidFile=$private/slurmctld.pid
SlurmdPidFile=$private/slurmd-%n.pid
SlurmdSpoolDir=$private/spool-%n
StateSaveLocation=$private/state
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
NodeName=h0 NodeAddr=$network.1 CPUs=4 State=UNKNOWN
NodeName=h1 NodeAddr=$network.2 CPUs=4 State=UNKNOWN
NodeName=h2 NodeAddr=$network.3 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=30 State=UP
CONF
# slurmd wants a cgroup plugin even where nothing uses it; that of version 1 asks for nothing when it starts.
echo CgroupPlugin=cgroup/v1 >"$dir/cgroup.conf"
mkdir -m 0700 "$private/state"
(umask 077 && head -c 64 /dev/urandom >"$private/munge.key")
on h0 munged --foreground --force --key-file "$private/munge.key" --socket "$private/munge.socket" \
  --pid-file "$private/munged.pid" --seed-file "$private/munged.seed" --log-file "$private/munged.log" \
  >"$dir/munged.log" 2>&1 &
for _ in $(seq 500); do [[ -S $private/munge.socket ]] && break || sleep 0.02; done
on h0 slurmctld -D >"$dir/slurmctld.out" 2>&1 &
for host in h0 h1 h2; do on "$host" slurmd -D -N "$host" >"$dir/slurmd-$host.out" 2>&1 & done
for _ in $(seq 300); do
  [[ $(on h0 sinfo -h -t idle -o %D 2>/dev/null) == 3 ]] && break || sleep 0.1
done
[[ $(on h0 sinfo -h -t idle -o %D 2>/dev/null) == 3 ]] || fail "Slurm's three hosts do not become idle"

mkdir "$dir/root"
cluster_env+=("SHOAL_ROOT=$dir/root")
run() { # SRUN-ARGUMENTS... : on h0, where one would log in
  on h0 timeout 100 srun "$@" >>"$dir/srun.log" 2>&1
}

# The job of $dir/job-id ends well after it was requeued once.
expect_requeued_once() {
  local job state='' _
  job=$(cat "$dir/job-id")
  for _ in $(seq 900); do
    state=$(on h0 scontrol show job "$job" -o 2>/dev/null |
      grep -o 'JobState=[A-Z_]*\|Restarts=[0-9]*' | tr '\n' ' ')
    [[ $state == *COMPLETED* || $state == *FAILED* ]] && break
    # A requeued job would rest for two minutes; but before the second in which it was requeued has passed, a
    # slurmd takes the new credential for the one that the requeue revoked.
    if [[ $state == *PENDING*Restarts=1* ]]; then
      sleep 2
      on h0 scontrol update "JobId=$job" StartTime=now 2>/dev/null || true
    fi
    sleep 0.1
  done
  [[ $state == *COMPLETED* && $state == *Restarts=1* ]] || fail "the job, which is requeued once: $state"
}

run -N 3 -n 6 "$trainer" --save-steps 1-3 --layers 2 || fail "the first step"
expect_committed 3 1
expect_nodes 1 3

# Two steps of one job are two generations, on other hosts, with other ranks and sharding; the first host of
# the job, not of the cluster, coordinates.
cat >"$dir/job.sh" <<JOB
#!/bin/bash
srun -N 2 -n 4 "$trainer" --load latest --sharding tp --save-steps 4 --layers 2 || exit 1
srun -N 1 -n 2 "$trainer" --load latest --save-steps 5 --layers 2 || exit 1
if [[ \${SLURM_RESTART_COUNT:-0} == 0 ]]; then
  scontrol requeue \$SLURM_JOB_ID
  sleep 60
fi
JOB
on h0 sbatch --parsable --requeue -w h1,h2 -N 2 -n 4 -o "$dir/sbatch.log" --open-mode=append "$dir/job.sh" \
  >"$dir/job-id" || fail "sbatch"
expect_requeued_once
expect_committed 4 2
expect_committed 5 3
# After the requeue: the same job and steps, another restart count, so other generations.
expect_committed 4 4
expect_committed 5 5

# The recipe, with a trainer of which a rank fails once: it requeues itself, and loads what was committed.
cat >"$dir/dies-once" <<WORKER
#!/bin/bash
if [[ ! -e "$dir/has-died" ]]; then
  "$trainer" --load latest --save-steps 6 --layers 2 --wait
  [[ \$SLURM_PROCID != 1 ]] || { touch "$dir/has-died" && exit 7; }
  exec sleep 60
fi
exec "$trainer" --load latest --save-steps 7 --layers 2 --sharding tp
WORKER
chmod +x "$dir/dies-once"
# The script wants SIGTERM 300 s before its time ends, so it needs more time than that.
on h0 sbatch --parsable -w h0,h2 -N 2 --ntasks-per-node=2 --time=20 -o "$dir/recipe.log" \
  "$recipes/slurm.sbatch" "$dir/dies-once" >"$dir/job-id" || fail "sbatch of the recipe"
expect_requeued_once
grep -q 'restart 1 of 3' "$dir/recipe.log" || fail "slurm.sbatch does not report its restart"
expect_committed 6 6
expect_committed 7 7
finish "srun: 6 ranks on 3 hosts saved; steps of jobs on 2 and 1 hosts, requeued, loaded every element"
