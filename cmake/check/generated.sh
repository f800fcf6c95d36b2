#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails where the generated files are not what the protos say.
set -euo pipefail
cd "$(dirname "$0")/../.."
generator=$1/starling-schema-gen
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$generator" "$out"
# reasons.md stands among them, but comes from controller/trainingjob/reasons.cc and its own test.
for place in crds charts/starling/files docs/reference python/starling/types.py; do
  diff -r -x reasons.md "$out/$place" "$place" || { echo "generated files are not current; run: make generate" >&2; exit 1; }
done
echo "generated: crds, its copy in the chart, docs/reference and Python's types are current"
