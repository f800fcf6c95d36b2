#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the programs of the test cluster from pinned Go modules, one folder here for each module,
# and prints for each the folder of its programs, one a line, in the order asked for. Programs are
# kept outside the tree under the hash of their go.mod and go.sum. Exits with 77 and a reason where
# Go is missing. To add a program: a folder here with a go.mod whose `tool` lines name it, then
# `go mod tidy` there. A module of one tool gives a program of the folder's own name.
# Usage: tests/kube/tools/build.sh etcd kubernetes ...
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/starling/kube"

build() {
  local name=$1 folder=$2 package version flags="-s -w"
  cd "$here/$name"
  command -v go >/dev/null || { echo "skipped: Go is missing, and $name is not built yet in $folder; install Go 1.24 or newer" >&2; exit 77; }
  echo "building $name (once, minutes) in $folder" >&2
  rm -rf "$folder"
  mkdir -p "$folder"
  export CGO_ENABLED=0 GOFLAGS="-mod=readonly -trimpath -buildvcs=false"
  # Kubernetes' programs ask this package for their version: v1.34.4 where the library is v0.34.4.
  version=$(go list -m -f '{{if .Replace}}{{.Replace.Version}}{{else}}{{.Version}}{{end}}' k8s.io/component-base 2>/dev/null || true)
  if [[ $version =~ ^v0\.([0-9]+)\.[0-9]+$ ]]; then
    local to=k8s.io/component-base/version
    flags+=" -X $to.gitVersion=v1${version#v0} -X $to.gitMajor=1 -X $to.gitMinor=${BASH_REMATCH[1]}"
  fi
  mapfile -t packages < <(go list tool)
  if [ ${#packages[@]} -eq 1 ]; then
    nice go build -p 2 -ldflags="$flags" -o "$folder/$name" "${packages[0]}" >&2
  else
    nice go build -p 2 -ldflags="$flags" -o "$folder/" "${packages[@]}" >&2
  fi
  touch "$folder/complete"
}

for name in "$@"; do
  [ -f "$here/$name/go.mod" ] || { echo "no such tool: $here/$name/go.mod" >&2; exit 1; }
  hash=$(cat "$here/$name/go.mod" "$here/$name/go.sum" | sha256sum | cut -c1-12)
  folder="$cache/$name-$hash"
  if [ ! -e "$folder/complete" ]; then
    mkdir -p "$cache"
    # One builder at a time, whoever else asks for the same program waits and finds it built.
    (flock 9; [ -e "$folder/complete" ] || build "$name" "$folder") 9>"$cache/$name.lock"
  fi
  echo "$folder"
done
