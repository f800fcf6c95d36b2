#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all tests of a build, the sanitized ones of build/asan too, and prints last how many passed,
# failed and were skipped; the failed, the skipped and those that needed a second try by name.
set -uo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
results=$PWD/build/results
mkdir -p "$results"
rm -f "$results"/*.xml "$results"/*.log
status=0

# stage NAME JOBS CTEST-OPTION...  So many tests at a time. All output goes to a file, what is not a
# pass to the terminal too. A stage that ends before it has run its tests (ctest could not list those
# of one program) leaves no results: the summary names it, and counts it as failed.
stage() {
  local name=$1 jobs=$2 began=$SECONDS code=0
  shift 2
  ctest -j "$jobs" --output-junit "$results/$name.xml" "$@" | tee "$results/$name.log" |
    grep --line-buffered -vE '^ *(Start|[0-9]+/[0-9]+ Test .* Passed)' || code=1
  echo "stage $name took $((SECONDS - began)) s"
  return $code
}

jobs=${JOBS:-2}
stages=()
lanes=()
# lane NICE COMMAND: beside the other lanes.
lane() {
  (renice -n $(($(nice) + $1)) -p "$BASHPID" >/dev/null; "$2") &
  lanes+=($!)
}

# Three lanes side by side.
#
# The cluster's tests are the longest chain, for half of them need the cluster for themselves; they
# mostly wait. So do jobs of many processes, for steps that are paced and for graces, so that more of
# them run at a time than there are cores. Those of the cluster go first where a core is wanted: some
# measure gaps of fractions of a second, while the others are beside them (nice). What computes all the
# time, unit tests and the sanitized ones, takes what the two leave.
#
# Tests labelled exact say whether results are right (which bytes, which samples, which objects) after
# whatever was done to them: once wrong is wrong, and a second try would hide the one history in a
# hundred that such a test is there to find. The others also say how soon something happens, on two
# cores that they share with what they measure: they may try twice; both tries are printed, and the
# summary names them. What such a test says of results (an audit, a digest, steps that were repeated)
# it judges by tests/results.py, and the summary counts it as failed when that was wrong at either
# try: so the tests of tests/kube, which measure gaps on one cluster, need not be two each.
cluster() {
  stage "$preset-cluster" 3 --preset "$preset" -L '^cluster$' --repeat until-pass:2
}
processes() {
  local whole=(--preset "$preset" -L 'e2e|kube') code=0
  stage "$preset-exact" $((2 * jobs)) "${whole[@]}" -L '^exact$' || code=1
  stage "$preset-timed" $((2 * jobs)) "${whole[@]}" -LE '^(exact|cluster)$' \
    --repeat until-pass:2 || code=1
  return $code
}
units() {
  local code=0
  stage "$preset" "$jobs" --preset "$preset" -LE 'e2e|kube' || code=1
  # Programs that `make asan` has built, and S3 beside a real store.
  if [ -f build/asan/build.ninja ] && [ "$preset" = release ]; then
    stage asan "$jobs" --preset asan -R '^(whole_.*|storage_s3)$' || code=1
  fi
  return $code
}

# Whoever comes first lists anew the tests of programs that were built: once, not three at a time.
ctest --preset "$preset" -N >"$results/listed.log" || status=1
lane 0 cluster
lane 5 processes
lane 10 units
for running in "${lanes[@]}"; do wait "$running" || status=1; done
for name in "$preset" "$preset-cluster" "$preset-exact" "$preset-timed"; do
  stages+=("$results/$name.xml")
done
[ "$preset" != release ] || [ ! -f build/asan/build.ninja ] || stages+=("$results/asan.xml")
python3 tests/report.py "${stages[@]}" || status=1
exit $status
