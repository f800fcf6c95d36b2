#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs python/ and the library of members (BIN/libstarling_embed.so) into one wheel in the folder DIST.
# It serves every Python from 3.10 on; auditwheel puts the libraries that it needs beside it, and names
# the oldest systems that it runs on. Prints the wheel's path.
#
# usage: python/wheel.sh BIN DIST
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: python/wheel.sh BIN DIST" >&2; exit 2; }
mkdir -p "$2"
bin=$(cd "$1" && pwd)
dist=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."
library=$bin/libstarling_embed.so
[ -e "$library" ] || { echo "wheel: there is no $library; run make wheel" >&2; exit 1; }
programs=$(cmake/setup/python-tools.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r python "$work/python"
rm -rf "$work"/python/build "$work"/python/*.egg-info
find "$work/python" -name __pycache__ -prune -exec rm -r {} +
mkdir -p "$work/python/starling/lib"
cp "$library" "$work/python/starling/lib/"
export PATH=$programs:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1
{
  pip wheel --quiet --no-build-isolation --no-deps --no-index --wheel-dir "$work/plain" "$work/python" &&
    auditwheel repair --strip --wheel-dir "$work/whole" "$work"/plain/*.whl
} >"$work/told" 2>&1 || { cat "$work/told" >&2; exit 1; }
wheel=$(basename "$work"/whole/*.whl)
rm -f "$dist"/starling_elastic-*.whl
mv "$work/whole/$wheel" "$dist/$wheel"
echo "$dist/$wheel"
