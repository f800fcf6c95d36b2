#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh OUT [TOOLS]: writes the page's files to OUT, each also compressed. TOOLS is the folder that
# cmake/setup/web.sh has printed; without it the page is the one that says how to get the other.
set -euo pipefail
source=$(cd "$(dirname "$0")" && pwd)/source
out=$1 tools=${2:-}
rm -rf "$out"
mkdir -p "$out"
cp "$source/icon.svg" "$out/"
if [ -n "$tools" ]; then
  NODE_PATH="$tools/node_modules" "$tools/node_modules/.bin/esbuild" "$source/page.tsx" "$source/page.css" \
    --bundle --minify --format=esm --target=es2022 --jsx=automatic --jsx-import-source=preact \
    --outdir="$out" --log-level=warning
  cp "$source/index.html" "$out/"
else
  cp "$source/without_tools.html" "$out/index.html"
  cp "$source/page.css" "$out/"
  : > "$out/page.js"
fi
cd "$out"
gzip -9nk index.html page.js page.css icon.svg
