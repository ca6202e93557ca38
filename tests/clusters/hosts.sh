# Hosts for the cluster tests, to be sourced: each is a network, mount and host-name namespace of this
# machine, with an address of its own (10.79.0.N), a runtime folder of its own (/tmp/shoal-UID) and a name,
# hN, that all of them know. They share every other folder, as a cluster shares a file system.
#
#   skip WHY                  status 77: the test cannot run here; with $SHOAL_REQUIRE_PEERS a failure
#   begin BUILD_DIR SECONDS [PROGRAM...]
#                             a scratch folder, $dir; everything ends after so long, or when the shell
#                             does. What has to be built: `shoal` and these (default: the sharded trainer)
#   make_hosts COUNT          h0, h1, ...
#   on HOST COMMAND...        a command there, with a clean environment and the variables of `cluster_env`
#   fail WHY                  ends with status 1, and shows the ends of all logs in $dir
#
# What is started by `on` lives in the hosts' namespaces, and only what lives there is ended.

set -euo pipefail

readonly network=10.79.0
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../examples/recipes" && pwd)
readonly recipes
declare -a host_pids=()
declare -a cluster_env=()
dir='' shoal='' trainer='' watchdog=''
is_done=0

skip() {
  [[ -z ${SHOAL_REQUIRE_PEERS:-} ]] || fail "SHOAL_REQUIRE_PEERS is set, and this test cannot run: $*"
  echo "skipped: $*"
  is_done=1
  exit 77
}

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

begin() {
  local build seconds=$2 program
  build=$(cd "${1:?usage: $0 BUILD_DIR}" && pwd)
  shoal=$build/cli/shoal
  trainer=$build/examples/sharded_trainer
  shift 2
  (($#)) || set -- "$trainer"
  for program in "$shoal" "$@"; do
    [[ -x $program ]] || fail "$program is not built"
  done
  dir=$(mktemp -d "${TMPDIR:-/tmp}/shoal-cluster-XXXXXX")
  trap clean_up EXIT
  trap 'exit 130' INT TERM HUP
  # Bounded in time whatever hangs: what this shell waits for is ended, then it cleans up.
  (
    trap 'kill "$nap" 2>/dev/null; exit 0' TERM
    sleep "$seconds" &
    nap=$!
    wait "$nap"
    echo "FAILED: it took more than $seconds s" >&2
    kill -TERM $$
    mapfile -t host_pids <"$dir/holders"
    kill -9 $(processes_of_hosts) 2>/dev/null
  ) &
  watchdog=$!
}

# Every process in the hosts' namespaces, our holders last.
processes_of_hosts() {
  local holder process space
  for holder in "${host_pids[@]}"; do
    space=$(readlink "/proc/$holder/ns/net" 2>/dev/null) || continue
    for process in /proc/[0-9]*; do
      [[ $(readlink "$process/ns/net" 2>/dev/null) == "$space" ]] || continue
      [[ ${process#/proc/} == "$holder" ]] || echo "${process#/proc/}"
    done
  done
}

clean_up() {
  local status=$? pids log
  trap - EXIT
  [[ -n $watchdog ]] && kill "$watchdog" 2>/dev/null || true
  if ((status != 0 && !is_done)) && [[ -n $dir ]]; then
    for log in "$dir"/*.log "$dir"/run-*/*.log; do
      [[ -s $log ]] || continue
      echo "--- the end of ${log#"$dir/"}" >&2
      tail -n 25 "$log" >&2
    done
  fi
  for _ in 1 2 3; do # a process may start another while we look
    pids=$(processes_of_hosts)
    [[ -z $pids ]] || kill -9 $pids 2>/dev/null || true
  done
  for pid in "${host_pids[@]}"; do
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  [[ -z $dir ]] || rm -rf "$dir"
  exit "$status"
}

new_host() { # NAME: a process that holds the namespaces; its pid is appended
  unshare --net --mount --uts -- sh -c 'hostname "$1" && mount -t sysfs none /sys && exec sleep infinity' \
    holder "$1" 2>"$dir/$1.holder" &
  local pid=$!
  host_pids+=("$pid")
  echo "$pid" >>"$dir/holders"
  for _ in $(seq 200); do
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) == sleep ]] && return 0
    kill -0 "$pid" 2>/dev/null || return 1
    sleep 0.01
  done
  return 1
}

make_hosts() {
  local count=$1 i switch
  command -v ip >/dev/null && command -v nsenter >/dev/null || skip "iproute2 and util-linux are needed"
  new_host switch || skip "namespaces are not permitted: $(cat "$dir/switch.holder")"
  switch=${host_pids[0]}
  nsenter -t "$switch" -n ip link add bridge0 type bridge 2>/dev/null || skip "no bridge can be made"
  nsenter -t "$switch" -n ip link set bridge0 up
  printf '127.0.0.1 localhost\n' >"$dir/hosts"
  for ((i = 0; i < count; ++i)); do printf '%s.%d h%d\n' "$network" $((i + 1)) "$i" >>"$dir/hosts"; done
  local runtime
  runtime=/tmp/shoal-$(id -u)
  mkdir -p -m 0700 "$runtime"
  for ((i = 0; i < count; ++i)); do
    new_host "h$i" || fail "host h$i: $(cat "$dir/h$i.holder")"
    local pid=${host_pids[i + 1]}
    nsenter -t "$pid" -n ip link add eth0 type veth peer name "port$i" netns "$switch"
    nsenter -t "$pid" -n ip address add "$network.$((i + 1))/24" dev eth0
    nsenter -t "$pid" -n ip link set lo up
    nsenter -t "$pid" -n ip link set eth0 up
    nsenter -t "$switch" -n ip link set "port$i" master bridge0 up
    mkdir -m 0700 "$dir/run-h$i"
    nsenter -t "$pid" -m mount --bind "$dir/run-h$i" "$runtime"
    nsenter -t "$pid" -m mount --bind "$dir/hosts" /etc/hosts
  done
  for ((i = 0; i < count; ++i)); do
    for _ in $(seq 500); do
      [[ $(on "h$i" cat /sys/class/net/eth0/operstate) == up ]] && continue 2
      sleep 0.02
    done
    fail "the network of h$i does not come up"
  done
}

on() {
  local pid=${host_pids[${1#h} + 1]}
  shift
  nsenter -t "$pid" -n -m -u -- env -i PATH="${shoal%/*}:$PATH" HOME="$dir" LANG=C "${cluster_env[@]}" "$@"
}

# The secret of the job, on the file system that all hosts share.
make_token() {
  (umask 077 && head -c 32 /dev/urandom | base64 >"$dir/token")
  cluster_env+=("SHOAL_TOKEN_FILE=$dir/token")
}

# One node a host served, one of them as the coordinator, and each has ended by itself or still may.
expect_nodes() { # COUNT of jobs so far, COUNT of hosts
  local ready coordinating
  ready=$(cat "$dir"/run-h*/*.log | grep -c 'ready, coordinat')
  coordinating=$(cat "$dir"/run-h*/*.log | grep -c 'ready, coordinating at')
  ((ready == $1 * $2)) || fail "$ready nodes served $1 jobs on $2 hosts"
  ((coordinating == $1)) || fail "$coordinating coordinators served $1 jobs"
}

# STEP GENERATION: committed at the first attempt.
expect_committed() {
  local attempts
  attempts=$("$shoal" ls "$dir/root")
  grep -qE "^ *$1 +$2 +1 +committed" <<<"$attempts" ||
    fail "step $1 of generation $2 is not committed: $attempts"
}

finish() {
  "$shoal" verify "$dir/root" --all >"$dir/verify.log" 2>&1 || fail "shoal verify"
  echo "passed: $*"
  is_done=1
}
