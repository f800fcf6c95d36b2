#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what checks and packs python/ outside the tree, pinned, and prints its folder of programs.
set -euo pipefail
. "$(dirname "$0")/venv.sh"
venv python python/requirements.txt
echo "$venv/bin"
