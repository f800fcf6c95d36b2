#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the system packages of a list (cmake/packages.txt by default) that are missing; asks for
# root only if something is. A line may name alternatives, as a|b: any of them will do.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
list=${1:-$here/../packages.txt}
missing=()
while read -r line; do
  found=
  IFS='|' read -ra alternatives <<<"$line"
  for package in "${alternatives[@]}"; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" != installed ] || found=$package
  done
  [ -n "$found" ] || missing+=("${alternatives[0]}")
done < <(grep -vE '^\s*(#|$)' "$list")
[ ${#missing[@]} -eq 0 ] && exit 0
echo "installing ${#missing[@]} system packages: ${missing[*]}"
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "these packages are missing and need root to install; run as root: apt-get install ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
