#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long proofs: every unit test of what has no libtorch under both sanitizers, ten times the
# simulated histories, and many repetitions of the tests that kill processes. A part that fails does
# not keep the others from running; the last lines say how each went and how long it took.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-2}
parts=()
failed=0

# part NAME COMMAND...  77: this machine cannot.
part() {
  local name=$1 began=$SECONDS verdict=passed
  shift
  "$@"
  case $? in
    0) ;;
    77) verdict=skipped ;;
    *) verdict=FAILED failed=1 ;;
  esac
  parts+=("$(printf '%-24s %-8s %6d s' "$name" "$verdict" $((SECONDS - began)))")
}

build() {
  mkdir -p build
  { cmake --preset "$1" >"build/$1.log" 2>&1 || { cat "build/$1.log"; return 1; }; } &&
    cmake --build --preset "$1" -j "$jobs"
}

for preset in asan tsan; do
  part "$preset: build" build "$preset"
  part "$preset: tests" env STARLING_SIM_SEEDS="${STARLING_SIM_SEEDS:-300}" \
    ctest --preset "$preset" -j "$jobs" -LE 'e2e|kube'
done
# Lines broken one at a time: tests notice them.
part "broken lines" make --no-print-directory mutants JOBS="$jobs"
# The technique table with five seeds; its page in docs is made from what ran.
part "technique table" make --no-print-directory techniques
part "protocol's models" make --no-print-directory model
part "simulated histories" env STARLING_SIM_SEEDS=3000 build/release/bin/trainer_simulation_test \
  --gtest_filter='*Simulation*-*ShardHistories*:*.OneHistoryIsPrintedOnRequest'
# Of shards ten thousand of each kind: as they are planned and at a whim, with aggregates and without.
part "histories of shards" env STARLING_SIM_SEEDS=10000 \
  build/release/bin/trainer_simulation_test --gtest_filter='ShardSimulation/ShardHistories.*'
part "end to end, repeated" env STARLING_E2E_REPEAT="${STARLING_E2E_REPEAT:-10}" \
  ctest --preset release -L e2e
# The tests of servers that choose at random, each with other seeds than `make test` has.
for seed in 2 3 4 5 6; do
  part "resized, seed $seed" env STARLING_CHAOS_SEED="$seed" build/release/bin/trainer_worker_test \
    --gtest_filter='ServerProcessTest.Servers*:ClientLifeTest.Whoever*'
  part "end to end, seed $seed" env STARLING_E2E_SEED="$seed" STARLING_E2E_REPEAT=1 \
    python3 -B tests/e2e/parameter_server_test.py Elastic.test_the_same_with_random_kills \
    Chaos.test_random_faults_lose_and_repeat_nothing
done
# A PyTorch program under random kills, joins and scaling: members equal, each sample once.
part "PyTorch's histories" env STARLING_BIN="$PWD/build/release/bin" \
  STARLING_HISTORIES="${STARLING_HISTORIES:-200}" python3 -B tests/e2e/pytorch_histories_test.py
# That what PyTorch programs are tested for would be noticed: one such control of each kind is in
# `make test` too.
part "PyTorch's controls" env STARLING_BIN="$PWD/build/release/bin" STARLING_CONTROLS=1 \
  python3 -B tests/e2e/pytorch_test.py Controls \
  Reproducible.test_controls_without_any_part_of_it_bits_differ
# All of it with the newest PyTorch too; FSDP2, which cuts a model among the processes of a member, needs that.
newest() {
  local python
  python=$(cmake/setup/pytorch.sh) || return
  env STARLING_BIN="$PWD/build/release/bin" STARLING_PYTHON_WITH_TORCH="$python" "${@/PYTHON/$python}"
}
for proof in torch/state torch/device e2e/pytorch e2e/diloco e2e/shard_group; do
  part "newest PyTorch, ${proof#*/}" newest PYTHON -B "tests/${proof}_test.py"
done
part "VGG-11's twenty steps" env STARLING_BIN="$PWD/build/release/bin" STARLING_VGG11_STEPS=20 \
  /usr/bin/python3 -B tests/models/models_test.py Vgg11
part "AlexNet and VGG-16" env STARLING_BIN="$PWD/build/release/bin" \
  python3 -B tests/e2e/large_networks_test.py
# Two minutes without an API server; `make test` makes do with twenty seconds.
part "API server down" env STARLING_API_SERVER_DOWN=120 tests/kube/faults_test.py \
  Faults.test_training_goes_on_while_the_api_server_is_down
part "hung workers in the cluster" env STARLING_HANGS=10 tests/kube/faults_test.py Hangs
part "power cuts in company" env STARLING_CUTS=10 tests/kube/faults_test.py \
  Faults.test_with_a_standby_the_same_power_cut_costs_seconds
# The controller dies after its n-th write, for n to 40 of the 43 to 49 of two jobs' life.
part "controller's deaths" env STARLING_BIN="$PWD/build/release/bin" \
  STARLING_CRASH_AFTER="$(seq -s ' ' 1 40)" \
  tests/kube/with_api_server.py --controller-manager -- python3 -B tests/faults/crash_test.py
# The image as whoever has Docker builds it: everything compiled by the Dockerfile.
part "Dockerfile's own build" tests/kube/image.py --compile --jobs "$jobs" \
  --cache "${CCACHE_DIR:-$HOME/.cache/ccache}" --tag docker.io/library/starling:compiled \
  "$PWD/build/starling-compiled.tar"
# Requests made up from REST's own OpenAPI document.
part "REST, made-up requests" tests/rest/fuzz.py 200
# What Prometheus says of dashboards and rules; each alert fires under its fault.
part "alerts and queries" python3 -B tests/dashboards/promtool_test.py
part "REST in a cluster, same" tests/kube/with_api_server.py --controller-manager -- \
  python3 -B tests/rest/fuzz_cluster.py 200
# A real Prometheus scrapes real jobs: every panel shows data, alerts fire under real faults.
part "dashboards played" env STARLING_BIN="$PWD/build/release/bin" \
  python3 -B tests/dashboards/play_test.py
# A real gang scheduler, a PyTorch image that knows nothing of Starling (under torchrun, and elastic),
# a Prometheus that finds the cluster's jobs, and the page in a browser minutes after `helm install`.
for proof in gang_test pytorch_ddp_test pytorch_test service_test page_test; do
  part "$proof" "tests/kube/$proof.py"
done

printf '%s\n' "" "${parts[@]}"
exit $failed
