#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs onnxruntime for tests/e2e/onnx_test.py, pinned, outside the tree, and prints the Python that has
# it. Does nothing where it is installed already; of several at once, one installs it.
set -euo pipefail
requirements=$(cd "$(dirname "$0")/../../tests/e2e" && pwd)/onnx-requirements.txt
version=$(sha256sum "$requirements" | cut -c1-12)
venv="${XDG_CACHE_HOME:-$HOME/.cache}/starling/onnxruntime-$version"
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9
if [ ! -e "$venv/complete" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
  touch "$venv/complete"
fi
echo "$venv/bin/python3"
