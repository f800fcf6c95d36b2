#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what checks and packs python/ outside the tree, pinned, and prints its folder of programs.
# Does nothing where it is installed already.
set -euo pipefail
requirements=$(cd "$(dirname "$0")/../../python" && pwd)/requirements.txt
version=$(sha256sum "$requirements" | cut -c1-12)
venv="${XDG_CACHE_HOME:-$HOME/.cache}/starling/python-$version"
if [ ! -e "$venv/complete" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
  touch "$venv/complete"
fi
echo "$venv/bin"
