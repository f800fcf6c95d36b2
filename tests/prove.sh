#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long proofs: every unit test of what has no libtorch under both sanitizers, ten times the
# simulated histories, and many repetitions of the tests that kill processes.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-2}
for preset in asan tsan; do
  cmake --preset "$preset" >"build/$preset.log"
  cmake --build --preset "$preset" -j "$jobs"
  STARLING_SIM_SEEDS=${STARLING_SIM_SEEDS:-300} ctest --preset "$preset" -j "$jobs" -LE 'e2e|kube'
done
STARLING_SIM_SEEDS=3000 ctest --preset release -R Simulation
STARLING_E2E_REPEAT=${STARLING_E2E_REPEAT:-10} ctest --preset release -L e2e
# Two minutes without an API server; `make test` makes do with twenty seconds.
STARLING_API_SERVER_DOWN=120 tests/kube/faults_test.py \
  Faults.test_training_goes_on_while_the_api_server_is_down || { [ $? -eq 77 ] || exit 1; }
# The controller dies after its n-th write, for n to 40 of the 43 to 49 of two jobs' life.
STARLING_BIN=$PWD/build/release/bin STARLING_CRASH_AFTER="$(seq -s ' ' 1 40)" \
  tests/kube/with_api_server.py --controller-manager -- python3 -B tests/faults/crash_test.py ||
  { [ $? -eq 77 ] || exit 1; }
# A real gang scheduler, and a PyTorch image that knows nothing of Starling; 77: this machine cannot.
for proof in gang_test pytorch_ddp_test; do
  tests/kube/$proof.py || { [ $? -eq 77 ] || exit 1; }
done
