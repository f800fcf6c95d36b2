#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copies libtorch_cpu into a folder, without the names of libraries of which it calls nothing. The
# Dockerfile takes the same names away from the image's own.
#
# usage: lean_torch.sh PATCHELF LIBRARY FOLDER
set -euo pipefail

patchelf=$1 library=$(readlink -f "$2") folder=$3
unused='^(lib(av|sw|opencv|lmdb|leveldb|snappy|zmq|zstd|OpenCL)|ocl-icd)'

mkdir -p "$folder"
rm -f "$folder"/*
remove=()
for name in $("$patchelf" --print-needed "$library" | grep -E "$unused" || true); do
  remove+=(--remove-needed "$name")
done
# Another libtorch than Debian's stays where it is, beside what it brings.
if [[ ${#remove[@]} -gt 0 ]]; then
  copy=$folder/$("$patchelf" --print-soname "$library")
  cp "$library" "$copy.new"
  "$patchelf" "${remove[@]}" "$copy.new"
  mv "$copy.new" "$copy"
fi
touch "$folder/done"
