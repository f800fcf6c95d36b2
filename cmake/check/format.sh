#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails where clang-format would change a file; `make format` changes them.
set -euo pipefail
cd "$(dirname "$0")/../.."
mapfile -t files < <(git ls-files -co --exclude-standard '*.h' '*.cc' '*.cu' | while read -r f; do [ -e "$f" ] && echo "$f"; done)
if [ "${1:-}" = --fix ]; then
  clang-format-14 -i "${files[@]}"
else
  clang-format-14 --dry-run --Werror "${files[@]}" || { echo "run: make format" >&2; exit 1; }
  echo "format: ${#files[@]} files"
fi
