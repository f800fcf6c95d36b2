#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the newest PyTorch outside the tree, pinned (some 6 GB with its CUDA), and prints the Python that
# has it. Does nothing where it is installed already.
set -euo pipefail
requirements=$(cd "$(dirname "$0")/../../tests/torch" && pwd)/requirements.txt
version=$(sha256sum "$requirements" | cut -c1-12)
venv="${XDG_CACHE_HOME:-$HOME/.cache}/starling/pytorch-$version"
if [ ! -e "$venv/complete" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --no-compile -r "$requirements" >&2
  touch "$venv/complete"
fi
echo "$venv/bin/python3"
