#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what reads C++ for tests/mutation outside the tree, pinned, and prints the Python that has
# it. Does nothing where it is installed already.
set -euo pipefail
requirements=$(cd "$(dirname "$0")/../../tests/mutation" && pwd)/requirements.txt
version=$(sha256sum "$requirements" | cut -c1-12)
venv="${XDG_CACHE_HOME:-$HOME/.cache}/starling/mutants-$version"
if [ ! -e "$venv/complete" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
  touch "$venv/complete"
fi
echo "$venv/bin/python3"
