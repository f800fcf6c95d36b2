#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copies libtorch_cpu into a folder, without the names of libraries of which it calls nothing.
#
# usage: lean_torch.sh PATCHELF LIBRARY FOLDER
set -euo pipefail

patchelf=$1 library=$(readlink -f "$2") folder=$3
unused='^(lib(av|sw|opencv|lmdb|leveldb|snappy|zmq|zstd|OpenCL)|ocl-icd)'

mkdir -p "$folder"
rm -f "$folder"/*
copy=$folder/$("$patchelf" --print-soname "$library")
cp "$library" "$copy.new"
remove=()
for name in $("$patchelf" --print-needed "$library" | grep -E "$unused" || true); do
  remove+=(--remove-needed "$name")
done
[[ ${#remove[@]} -eq 0 ]] || "$patchelf" "${remove[@]}" "$copy.new"
mv "$copy.new" "$copy"
touch "$folder/done"
