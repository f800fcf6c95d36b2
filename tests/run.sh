#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all tests of a build, the sanitized ones of build/asan too, and prints last how many passed,
# failed and were skipped; the failed, the skipped and those that needed a second try by name.
set -uo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
results=$PWD/build/results
mkdir -p "$results"
rm -f "$results"/*
status=0

# stage NAME CTEST-OPTION...  All output goes to a file, what is not a pass to the terminal too.
stage() {
  local name=$1
  shift
  ctest -j "${JOBS:-2}" --output-junit "$results/$name.xml" "$@" | tee "$results/$name.log" |
    grep -vE '^ *(Start|[0-9]+/[0-9]+ Test .* Passed)' || status=1
}

stage "$preset" --preset "$preset" -LE 'e2e|kube'
# A job of many processes, and a whole Kubernetes, share two cores with what is measured in them: a
# test of these may try twice; both tries are printed, and the summary names it.
stage "$preset-e2e" --preset "$preset" -L e2e --repeat until-pass:2
stage "$preset-kube" --preset "$preset" -L kube --repeat until-pass:2
if [ -f build/asan/build.ninja ] && [ "$preset" = release ]; then
  stage asan --preset asan -LE 'e2e|kube' -E '_NOT_BUILT'
fi
python3 tests/report.py "$results"/*.xml || status=1
exit $status
