#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the page (controller/web) is bundled, checked and tested with, pinned by its lock file,
# outside the tree, and prints the folder. Does nothing where it is installed already. Fails, and says
# why, where there is no npm or npm cannot fetch it: the programs are built without the page then.
set -euo pipefail
here=$(cd "$(dirname "$0")/../../controller/web" && pwd)
version=$(sha256sum "$here/package-lock.json" | cut -c1-12)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/starling"
tools="$cache/web-$version"
if [ ! -e "$tools/node_modules" ]; then
  command -v npm >/dev/null || { echo "the page is left out: install npm, then configure again" >&2; exit 1; }
  mkdir -p "$cache"
  fresh=$(mktemp -d "$cache/web-XXXXXX")
  trap 'rm -rf "$fresh"' EXIT
  cp "$here/package.json" "$here/package-lock.json" "$fresh/"
  # None of these packages needs a script of its own to be run.
  (cd "$fresh" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2) ||
    { echo "the page is left out: npm could not install its tools; configure again to retry" >&2; exit 1; }
  # Whoever is first wins, where two configure at once.
  mv -T "$fresh" "$tools" 2>/dev/null || [ -e "$tools/node_modules" ]
fi
echo "$tools"
