#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All measurements, product and peer in turn, in one run; build/bench/*.json hold the figures.
# Usage: [HIGGS=FOLDER] bench/run.sh [FOLDER OF PROGRAMS]
# HIGGS is what bench/sparse.py takes as --data. What is left out is said again at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${1:-build/release/bin}")
export STARLING_BIN=$bin
mkdir -p build/bench
skipped=()
skip() {
  skipped+=("SKIPPED: $1")
  echo "SKIPPED: $1" >&2
}

bench/recovery.py
echo
bench/step_time.py
bench/step_time.py --network mlp10m --network alexnet64 --network vgg16-64 --rounds 1 --scale 0.4
echo
bench/images.py
echo
"$bin/starling-microbench" --benchmark_min_time=0.2 --benchmark_out_format=json \
  --benchmark_out=build/bench/microbench.json
echo
bench/allreduce.py --bin "$bin" --ranks 2,4 --plot build/bench/allreduce.svg
echo
bench/parameter_server.py --bin "$bin"
echo
# With a Python that has torchft too, for torchft beside: PYTORCH=VENV/bin/python make bench
bench/pytorch.py ${PYTORCH:+--python "$PYTORCH"}
echo
bench/codecs.py
bench/buckets.py
bench/state_copy.py
echo
bench/sparse.py --bin "$bin"
echo
if [ -n "${HIGGS:-}" ]; then
  bench/sparse.py --bin "$bin" --data "$HIGGS" --json build/bench/sparse-higgs.json
else
  skip "bench/sparse.py --data: UCI's HIGGS is not in this tree; name its folder: make bench HIGGS=FOLDER (bench/sparse.py --help says what it holds)"
fi
echo
bench/service.py
echo
# Exit code 77: the test cluster's programs cannot be had here.
code=0
bench/service_accounts.py || code=$?
case $code in
  0) ;;
  77) skip "bench/service_accounts.py: for the reason above" ;;
  *) exit $code ;;
esac
echo
code=0
bench/operator/run.py --jobs 500 --jobs 2000 --alone 10000 --rounds 6 \
  --json build/bench/operator.json || code=$?
case $code in
  0) ;;
  77) skip "bench/operator/run.py: for the reason above" ;;
  *) exit $code ;;
esac
[ ${#skipped[@]} -eq 0 ] || printf '%s\n' "" "${skipped[@]}" >&2
