#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test.sh [TOOLS]: runs source/*_test.ts by Node's test runner. Exits 77, which counts as skipped, where
# cmake/setup/web.sh could not install TOOLS.
set -euo pipefail
source=$(cd "$(dirname "$0")" && pwd)/source
tools=${1:-}
[ -n "$tools" ] || { echo "SKIPPED: npm is not installed, see cmake/setup/web.sh" >&2; exit 77; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
NODE_PATH="$tools/node_modules" "$tools/node_modules/.bin/esbuild" "$source"/*_test.ts --bundle \
  --platform=node --format=esm --out-extension:.js=.mjs --outdir="$out" --log-level=warning
node --test "$out"
