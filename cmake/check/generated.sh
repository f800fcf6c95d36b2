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
for folder in crds charts/starling/files docs/reference; do
  diff -r -x reasons.md "$out/$folder" "$folder" || { echo "generated files are not current; run: make generate" >&2; exit 1; }
done
echo "generated: crds, its copy in the chart and docs/reference are current"
