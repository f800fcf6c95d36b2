#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the pinned CUDA compiler and NCCL outside the tree and prints their folder. Does nothing
# where they are installed already.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=$(sha256sum "$here/cuda-requirements.txt" | cut -c1-12)
venv="${XDG_CACHE_HOME:-$HOME/.cache}/starling/cuda-$version"
if [ ! -e "$venv/complete" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/cuda-requirements.txt" >&2
  touch "$venv/complete"
fi
echo "$venv"/lib/python3*/site-packages/nvidia
