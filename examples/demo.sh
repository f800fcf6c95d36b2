#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains examples/digits.yaml with two workers and kills one with -9 on the way. All state lives in
# a folder of its own; nothing is left running.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-build/release/bin}
export STARLING_HOME=${STARLING_HOME:-$PWD/build/demo}
rm -rf "$STARLING_HOME"

say() { printf '\n\033[1m%s\033[0m\n' "$1" >&2; }
pid_of() { # the first process of pod $1, once training is under way
  "$bin/starling" get pods "$1" -o json 2>/dev/null |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["metadata"]["annotations"]["starling.dev/pid"])' 2>/dev/null || true
}
step_of() {
  "$bin/starling" get job digits -o json 2>/dev/null |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["status"]["progress"]["step"])' 2>/dev/null || echo 0
}

say "Training handwritten digits with two workers, 20 epochs, each step slowed to 20 ms so that you can watch."
"$bin/starling" run examples/digits.yaml --set spec.experiment.stepDelay=20ms \
  --set spec.stop.target=null --set spec.validation.patience=0 &
run=$!
trap 'kill -INT $run 2>/dev/null || true; wait $run 2>/dev/null || true' EXIT

for _ in $(seq 300); do
  kill -0 $run 2>/dev/null || break
  [ "$(step_of)" -ge 40 ] && break
  read -rt 0.1 <> <(:) || true
done
victim=$(pid_of digits-worker-1)
if [ -z "$victim" ]; then
  echo "demo: digits-worker-1 has no process to kill; see $STARLING_HOME/controller.log" >&2
  exit 1
fi
say "kill -9 $victim   # the first process of digits-worker-1"
kill -9 "$victim"
trap - EXIT
wait $run
