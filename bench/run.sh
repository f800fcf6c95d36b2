#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All measurements, product and peer in turn, in one run. Usage: bench/run.sh [FOLDER OF PROGRAMS]
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${1:-build/release/bin}")
export STARLING_BIN=$bin
bench/recovery.py
echo
bench/step_time.py
echo
"$bin/starling-microbench" --benchmark_min_time=0.2
echo
bench/parameter_server.py --bin "$bin"
echo
# Exit code 77: the set of sparse samples is not here.
bench/sparse.py --bin "$bin" || [ $? -eq 77 ]
echo
# Exit code 77: the test cluster's programs cannot be had here, and the reason is printed.
bench/operator/run.py --jobs 500 --jobs 2000 --alone 10000 --rounds 6 || [ $? -eq 77 ]
