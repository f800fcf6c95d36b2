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

# stage NAME CTEST-OPTION...  All output goes to a file, what is not a pass to the terminal too.
stage() {
  local name=$1
  shift
  ctest -j "${JOBS:-2}" --output-junit "$results/$name.xml" "$@" | tee "$results/$name.log" |
    grep -vE '^ *(Start|[0-9]+/[0-9]+ Test .* Passed)' || status=1
}

stage "$preset" --preset "$preset" -LE 'e2e|kube'
# Jobs of many processes, and whole Kubernetes. Those labelled exact say whether results are right
# (which bytes, which samples, which objects) after whatever was done to them: once wrong is wrong,
# and a second try would hide the one history in a hundred that such a test is there to find. The
# others also say how soon something happens, on two cores that they share with what they measure:
# they may try twice; both tries are printed, and the summary names them.
for label in e2e kube; do
  stage "$preset-$label-exact" --preset "$preset" -L "$label" -L '^exact$'
  stage "$preset-$label" --preset "$preset" -L "$label" -LE '^exact$' --repeat until-pass:2
done
if [ -f build/asan/build.ninja ] && [ "$preset" = release ]; then
  stage asan --preset asan -LE 'e2e|kube' -E '_NOT_BUILT'
fi
python3 tests/report.py "$results"/*.xml || status=1
exit $status
