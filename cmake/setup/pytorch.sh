#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the newest PyTorch outside the tree, pinned (some 6 GB with its CUDA), and prints the Python that
# has it.
set -euo pipefail
. "$(dirname "$0")/venv.sh"
venv pytorch tests/torch/requirements.txt --no-cache-dir --no-compile
echo "$venv/bin/python3"
