#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all tests of a build, the sanitized ones of build/asan too, and prints last how many passed,
# failed and were skipped, the skipped ones by name.
set -uo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
mkdir -p build/results
rm -f build/results/*.xml
status=0
quiet='^ *(Start|[0-9]+/[0-9]+ Test .* Passed)'
ctest --preset "$preset" -j "${JOBS:-2}" -LE kube --output-junit "$PWD/build/results/$preset.xml" | grep -vE "$quiet" || status=1
# A whole Kubernetes shares two cores with what is measured in it: a test of it may try twice, and
# both tries are printed.
ctest --preset "$preset" -j "${JOBS:-2}" -L kube --repeat until-pass:2 --output-junit "$PWD/build/results/$preset-kube.xml" | grep -vE "$quiet" || status=1
if [ -f build/asan/build.ninja ] && [ "$preset" = release ]; then
  ctest --preset asan -j "${JOBS:-2}" -LE 'e2e|kube' -E '_NOT_BUILT' --output-junit "$PWD/build/results/asan.xml" | grep -vE "$quiet" || status=1
fi
python3 tests/report.py build/results/*.xml || status=1
exit $status
