#!/usr/bin/env bash
# The main job, end to end: two nodes with two trainers each save; one trainer is killed, then a whole job;
# two ranks with another mesh load what was committed and check every element.
#
#   examples/demo.sh BUILD_DIR [--ports] [--device cuda] [--staging wait|stream|until]
#
# Exits with 0 only if every check passed; takes less than a minute. With --device cuda the tensors lie on the
# GPUs of this host.
#
# The nodes are network namespaces where that is permitted, else (or with --ports) two ports of this host.
# Everything lies in a temporary folder that is removed at the end, as are the namespaces. Only processes
# started here are killed.
set -euo pipefail

usage='usage: examples/demo.sh BUILD_DIR [--ports] [--device host|cuda] [--staging wait|stream|until]'
readonly usage
build=$(cd "${1:?$usage}" && pwd)
shift
only_ports=0 trainer_flags=()
while (($#)); do
  case $1 in
    --ports) only_ports=1; shift ;;
    --device | --staging) trainer_flags+=("$1" "${2:?$usage}"); shift 2 ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
done
readonly build only_ports trainer_flags
readonly shoal=$build/cli/shoal trainer=$build/examples/sharded_trainer
readonly small=(--layers 4 --hidden 384 --vocab 8192)   # about 120 MB with Adam's moments
readonly large=(--layers 4 --hidden 768 --vocab 16384)  # about 490 MB: writing takes long enough to be hit
readonly job_timeout_s=120

unset "${!SHOAL_@}" "${!SLURM_@}"
for program in "$shoal" "$trainer"; do
  [[ -x $program ]] || { echo "$program is not built" >&2; exit 2; }
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/shoal-demo-XXXXXX")
readonly dir root=$dir/root
declare -a launches=() children=() logs=()
declare -a namespaces=()
address0=127.0.0.1
finished=0

# ---- cleaning up ----

children_of() {
  cat "/proc/$1/task/$1/children" 2>/dev/null || true
}

kill_everything() {
  local pid
  for pid in "${launches[@]}"; do children+=($(children_of "$pid")); done
  # Nodes and trainers first: a node whose launcher is gone would still finish what is staged.
  for pid in "${children[@]}" "${launches[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  for pid in "${launches[@]}"; do wait "$pid" 2>/dev/null || true; done
  launches=() children=()
}

clean_up() {
  local namespace log
  kill_everything
  if ((!finished)); then
    for log in "${logs[@]}"; do
      [[ -s $log ]] || continue
      echo "--- the end of $(basename "$log")" >&2
      tail -n 25 "$log" >&2
    done
  fi
  for namespace in "${namespaces[@]}"; do ip netns del "$namespace" 2>/dev/null || true; done
  rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

title() { printf '\n== %s\n' "$*"; }
fail() {
  echo "DEMO FAILED: $*" >&2
  exit 1
}

# ---- two hosts ----

set_up_namespaces() {
  local i
  command -v ip >/dev/null || return 1
  for i in 0 1; do
    ip netns add "shoal-demo-$$-$i" 2>/dev/null || return 1
    namespaces+=("shoal-demo-$$-$i")
    ip -n "${namespaces[i]}" link set lo up || return 1
  done
  ip -n "${namespaces[0]}" link add veth0 type veth peer name veth0 netns "${namespaces[1]}" || return 1
  for i in 0 1; do
    ip -n "${namespaces[i]}" address add "10.77.0.$((i + 1))/24" dev veth0 || return 1
    ip -n "${namespaces[i]}" link set veth0 up || return 1
  done
  # The kernel reports the state UP some time after the interfaces were set up.
  for i in 0 1; do
    for _ in {1..100}; do
      [[ $(ip -n "${namespaces[i]}" link show veth0) == *'state UP'* ]] && continue 2
      sleep 0.05
    done
    return 1
  done
}

# Runs a command on a host, in place of this (sub)shell. Hosts share no memory: UCX tells them apart by their
# IPC namespaces.
on_host() {
  local host=$1
  shift
  export SHOAL_RUNTIME_DIR=$dir/runtime-$host
  if ((${#namespaces[@]} == 2)); then exec ip netns exec "${namespaces[host]}" unshare --ipc "$@"; fi
  exec "$@"
}

free_port() {
  local port
  for _ in {1..50}; do
    port=$((16000 + RANDOM % 16000)) # below those that the system hands out
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
  fail "no free port was found"
}

# ---- jobs ----

# launch HOST LOG ARGUMENT...: `shoal launch` in the background; its pid goes into `launches`.
launch() {
  local host=$1 log=$dir/$2.log
  shift 2
  logs+=("$log")
  on_host "$host" "$shoal" launch --root "$root" "$@" >"$log" 2>&1 &
  launches+=($!)
}

# launch_pair JOB TRAINER-ARGUMENT...: two trainers on each host; those arguments are the trainers'.
launch_pair() {
  local job=$1 host port
  port=$(free_port)
  shift
  for host in 0 1; do
    launch "$host" "$job-host$host" --create -n 2 --nnodes 2 --node-rank "$host" \
      --coordinator "$address0:$port" --job-id "$job-$$" --token-file "$dir/token" \
      --stats-file "$dir/$job-$host.stats" -- "$trainer" "${trainer_flags[@]}" "$@"
  done
}

# wait_for_launches STATUS...: waits until all of `launches` have ended, each with its status.
wait_for_launches() {
  local deadline=$((SECONDS + job_timeout_s)) i ended status
  local -a expected=("$@") is_done=()
  for ((ended = 0; ended < ${#launches[@]};)); do
    ((SECONDS < deadline)) || fail "a job did not end within $job_timeout_s s"
    for i in "${!launches[@]}"; do
      [[ -z ${is_done[i]:-} ]] && ! kill -0 "${launches[i]}" 2>/dev/null || continue
      status=0
      wait "${launches[i]}" || status=$?
      ((status == expected[i])) || fail "shoal launch on host $i ended with $status, not ${expected[i]}"
      is_done[i]=1
      ended=$((ended + 1))
    done
    sleep 0.05
  done
  launches=()
}

state_of() { # state_of STEP: what `shoal ls` says of it, "" where there is no attempt
  "$shoal" ls "$root" | awk -v step="$1" '$1 == step { print $4 ($5 == "*" ? " *" : "") }'
}

# One line a step from the trainers' JSON lines.
print_saves() {
  sed -n 's/[{}"]//g; /event:save/p' "$1" | tr ',' ' ' | awk '
    function ratio(a, b) { return (b > 0) ? sprintf("%.2f", a / b) : "-" }
    { for (i = 1; i <= NF; i++) { split($i, pair, ":"); value[pair[1]] = pair[2] }
      step = value["step"]; ranks[step]++; bytes[step] += value["bytes"]
      if (value["first"] == "true") first[step] = 1
      blocked[step] += value["blocked_s"]; memcpy[step] += value["memcpy_s"]
      if (value["commit_s"] > commit[step]) commit[step] = value["commit_s"] }
    END {
      printf "%5s %6s %11s %15s %15s %7s %12s\n",
             "step", "ranks", "bytes", "blocked (mean)", "memcpy (mean)", "ratio", "committed in"
      for (step in ranks)
        printf "%5d %6d %8.1f MB %12.2f ms %12.2f ms %7s %10.2f s%s\n", step, ranks[step],
               bytes[step] / 1e6, 1e3 * blocked[step] / ranks[step], 1e3 * memcpy[step] / ranks[step],
               ratio(blocked[step], memcpy[step]), commit[step],
               first[step] ? "  (the first, before a roster existed)" : "" }' |
    sort -n
}

# Frames and bytes by transport, of both nodes; fails where none crossed.
print_transport() {
  awk -F '[=.]' '
    /^transport[.]/ { if ($3 == "frames") frames[$2] += $4; else bytes[$2] += $4 }
    END {
      for (name in frames) {
        printf "  over %-10s %8d frames %12d bytes\n", name, frames[name], bytes[name]
        all += frames[name]
      }
      exit all == 0 }' "$@" || fail "no frame crossed between the nodes"
}

# ---- the demo ----

if ((!only_ports)) && set_up_namespaces; then
  address0=10.77.0.1
  echo "Two nodes: network namespaces ${namespaces[*]}, joined by a veth pair."
else
  for namespace in "${namespaces[@]}"; do ip netns del "$namespace" 2>/dev/null || true; done
  namespaces=()
  echo "Two nodes: two ports on 127.0.0.1 (network namespaces are not permitted, or --ports was given)."
fi
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/token")
mkdir -m 700 "$dir/runtime-0" "$dir/runtime-1"

title "Four trainers (FSDP x TP) save steps 1 to 3; rank 3 is killed with SIGKILL after staging step 3"
launch_pair first "${small[@]}" --sharding fsdp+tp --inner 2 --save-steps 1-3 --wait --train-ms 300 \
  --kill-after-stage 3 --kill-rank 3 --json "$dir/saves.json"
wait_for_launches 0 137 # 128 + SIGKILL, rank 3's
for step in 1 2 3; do
  [[ $(state_of "$step") == committed* ]] || fail "step $step is '$(state_of "$step")', not committed"
done
echo "Steps 1, 2 and 3 are committed, although rank 3 was killed as soon as it had staged its part of step 3."
print_saves "$dir/saves.json"
echo "(Each rank reports its times. Rank 3 was killed before it could report step 3; its bytes are saved.)"
print_transport "$dir/first-0.stats" "$dir/first-1.stats"

title "Another job is killed, nodes and trainers, while it writes step 4"
launch_pair second "${large[@]}" --sharding fsdp+tp --inner 2 --save-steps 4
deadline=$((SECONDS + job_timeout_s))
until compgen -G "$root/step-00000004/*/*.partial" >/dev/null; do
  for pid in "${launches[@]}"; do
    kill -0 "$pid" 2>/dev/null || fail "the second job ended before it wrote"
  done
  ((SECONDS < deadline)) || fail "the second job wrote nothing within $job_timeout_s s"
  sleep 0.002
done
kill_everything
[[ $(state_of 4) == undecided ]] || fail "step 4 is '$(state_of 4)', not undecided"
[[ $(state_of 3) == 'committed *' ]] || fail "the latest checkpoint is not step 3"
leftovers=$(find "$root/step-00000004" -type f | wc -l)
((leftovers > 0)) || fail "the killed job left nothing behind, so it was not writing"
echo "Step 4 is undecided and invisible, and left $leftovers files. The latest checkpoint is step 3."

title "A third job, two ranks on one host with another mesh (TP), loads step 3 and checks every element"
launch 0 third -n 2 --resume --abandoned-after-ms 2000 -- "$trainer" "${trainer_flags[@]}" \
  "${small[@]}" --sharding tp --load latest
wait_for_launches 0
grep 'elements, all correct' "$dir/third.log"
(($(grep -c 'loaded step 3 .*elements, all correct' "$dir/third.log") == 2)) ||
  fail "not both ranks loaded step 3 and found every element right"
[[ $(state_of 4) == aborted ]] || fail "step 4 is '$(state_of 4)', not aborted"
leftovers=$(find "$root/step-00000004" -type f ! -name manifest.shoal | wc -l)
((leftovers == 0)) || fail "$leftovers files of step 4 were not swept"
echo "Step 4 is aborted now, and its files are removed."

title "shoal ls, shoal verify"
"$shoal" ls "$root"
"$shoal" verify "$root" --all || fail "verify found damage"

finished=1
printf '\nAll checks passed in %d s.\n' "$SECONDS"
