#!/usr/bin/env bash
# examples/recipes/kubernetes/train.yaml without Kubernetes: the command of its container, with its variables,
# on two hosts that stand for its pods.
#   kubernetes_test.sh BUILD_DIR     status 77: it cannot run here
source "$(dirname "${BASH_SOURCE[0]}")/hosts.sh"

python3 -c 'import yaml' 2>/dev/null || skip "python3 has no PyYAML (tools/python_environment)"
python=$(command -v python3)
begin "$1" 240
make_hosts 2
mkdir "$dir/volume"

pod() { # INDEX UID TRAINER...
  local index=$1 uid=$2
  shift 2
  on "h$index" timeout 100 "$python" "$recipes/../../tests/recipes/pod.py" "$recipes/kubernetes/train.yaml" \
    Job/run7 --volume "$dir/volume" --index "$index" --ip "$network.$((index + 1))" --uid "$uid" \
    --set RANKS=2 --set SHOAL_STAGING_MEMORY=1GiB -- "$trainer" "$@" >>"$dir/pod-$index.log" 2>&1
}

# The second pod is first, and the name of the first one is not known yet.
pod 1 job-uid-1 --load resume --saves 2 --layers 2 &
second=$!
unknown='cannot resolve host run7-0.run7'
for _ in $(seq 500); do
  grep -q "$unknown" "$dir/pod-1.log" 2>/dev/null && break || sleep 0.02
done
grep -q "$unknown" "$dir/pod-1.log" || fail "the second pod does not report its wait"
printf '%s.1 run7-0.run7\n' "$network" >>"$dir/hosts"
pod 0 job-uid-1 --load resume --saves 2 --layers 2 || fail "the first pod"
wait "$second" || fail "the second pod"
ln -s volume/run7 "$dir/root"
expect_committed 2 1

# The next Job, with another uid, is another generation and loads what the first one saved.
pod 1 job-uid-2 --load resume --saves 9 --layers 2 &
second=$!
pod 0 job-uid-2 --load resume --saves 9 --layers 2 || fail "the first pod of the second Job"
wait "$second" || fail "the second pod of the second Job"
grep -q 'rank 0: loaded step 2 ' "$dir/pod-0.log" || fail "the second Job does not continue the first"
expect_committed 11 2
finish "kubernetes: the command of train.yaml on two hosts, the second waits for the first one's name"
