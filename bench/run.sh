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
