#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails where clang-format, or prettier for the page, would change a file; `make format` changes them.
set -euo pipefail
cd "$(dirname "$0")/../.."
mapfile -t files < <(git ls-files -co --exclude-standard '*.h' '*.cc' '*.cu' | while read -r f; do [ -e "$f" ] && echo "$f"; done)
mapfile -t page < <(git ls-files -co --exclude-standard '*.ts' '*.tsx' '*.mjs' | while read -r f; do [ -e "$f" ] && echo "$f"; done)
if tools=$(cmake/setup/web.sh); then
  prettier=("$tools/node_modules/.bin/prettier" --config controller/web/package.json --log-level warn)
else
  prettier=(true)
  echo "format: SKIPPED for the page, its tools are not there" >&2
fi
if [ "${1:-}" = --fix ]; then
  clang-format-14 -i "${files[@]}"
  "${prettier[@]}" --write "${page[@]}"
else
  clang-format-14 --dry-run --Werror "${files[@]}" || { echo "run: make format" >&2; exit 1; }
  "${prettier[@]}" --check "${page[@]}" || { echo "run: make format" >&2; exit 1; }
  echo "format: $((${#files[@]} + ${#page[@]})) files"
fi
