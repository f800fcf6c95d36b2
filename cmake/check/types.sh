#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Holds the page's source against its types (tsc --strict). The compiler looks for libraries beside the
# source, where none lie: it sees both through links in a folder of their own.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
tools=$("$root/cmake/setup/web.sh") || { echo "types: SKIPPED, the page's tools are not there" >&2; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ln -s "$tools/node_modules" "$folder/node_modules"
ln -s "$root/controller/web/source" "$folder/source"
cp "$root/controller/web/tsconfig.json" "$folder/"
cd "$folder"
node_modules/.bin/tsc --project tsconfig.json
echo "types: $(ls source/*.ts source/*.tsx | wc -l) files"
