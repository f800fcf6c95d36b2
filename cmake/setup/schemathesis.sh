#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what makes requests up from an OpenAPI document for tests/rest, pinned, outside the tree, and
# prints its program. Does nothing where it is installed already.
set -euo pipefail
requirements=$(cd "$(dirname "$0")/../../tests/rest" && pwd)/requirements.txt
version=$(sha256sum "$requirements" | cut -c1-12)
venv="${XDG_CACHE_HOME:-$HOME/.cache}/starling/schemathesis-$version"
if [ ! -e "$venv/complete" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
  touch "$venv/complete"
fi
echo "$venv/bin/schemathesis"
