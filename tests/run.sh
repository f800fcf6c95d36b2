#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all tests of a build, the sanitized ones of build/asan too, and prints last how many passed,
# failed and were skipped; the failed, the skipped and those that needed a second try by name.
set -uo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
results=$PWD/build/results
mkdir -p "$results"
rm -f "$results"/*.xml "$results"/*.log "$results"/*/*.json
status=0

# stage NAME JOBS CTEST-OPTION...  So many tests at a time. All output goes to a file, what is not a
# pass to the terminal too. A stage that ends before it has run its tests leaves no results: the
# summary names it, and counts it as failed. Of a GoogleTest program, which is one test of ctest's, the
# summary counts the cases (tests/gtest_program.py).
stages=()
stage() {
  local name=$1 jobs=$2 began=$SECONDS
  shift 2
  stages+=("$results/$name.xml")
  STARLING_CASES=$results/$name ctest -j "$jobs" --output-junit "$results/$name.xml" "$@" | tee "$results/$name.log" |
    grep -vE '^ *(Start|[0-9]+/[0-9]+ Test .* Passed)' || status=1
  echo "stage $name took $((SECONDS - began)) s"
}

jobs=${JOBS:-2}
stage "$preset" "$jobs" --preset "$preset" -LE 'e2e|kube'
# Jobs of many processes, and whole Kubernetes. They mostly wait, for steps that are paced and for
# graces, so that more of them run at a time than there are cores; which of the cluster run beside
# which is told in tests/kube/CMakeLists.txt. Those labelled exact say whether results are right
# (which bytes, which samples, which objects) after whatever was done to them: once wrong is wrong,
# and a second try would hide the one history in a hundred that such a test is there to find. The
# others also say how soon something happens, on two cores that they share with what they measure:
# they may try twice; both tries are printed, and the summary names them. What such a test says of
# results (an audit, a digest, steps that were repeated) it judges by tests/results.py, and the summary
# counts it as failed when that was wrong at either try: so the tests of tests/kube, which measure
# gaps on one cluster, need not be two each.
whole=(--preset "$preset" -L 'e2e|kube')
stage "$preset-exact" $((2 * jobs)) "${whole[@]}" -L '^exact$'
stage "$preset-timed" $((2 * jobs)) "${whole[@]}" -LE '^exact$' --repeat until-pass:2
# Programs that `make asan` has built, and S3 beside a real store.
if [ -f build/asan/build.ninja ] && [ "$preset" = release ]; then
  stage asan "$jobs" --preset asan -L '^hostile_input$'
fi
python3 tests/report.py "${stages[@]}" || status=1
exit $status
