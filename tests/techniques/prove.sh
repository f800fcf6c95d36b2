#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plays the technique table with five seeds, and the race of the stragglers; writes
# build/results/techniques/*.json and from them docs/techniques.md. Usage: prove.sh FOLDER_OF_PROGRAMS
set -euo pipefail
cd "$(dirname "$0")/../.."
results=build/results/techniques
rm -rf "$results"
status=0
"$1/starling-techniques" --seeds 5 --out "$results" || status=1
"$1/starling-techniques" --study stragglers --seeds 5 --out "$results" || status=1
/usr/bin/python3 tests/techniques/page.py --results "$results" --out docs # Debian's has matplotlib
exit $status
