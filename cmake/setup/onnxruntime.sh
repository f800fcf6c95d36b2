#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs onnxruntime for tests/e2e/onnx_test.py, pinned, outside the tree, and prints the Python that has
# it.
set -euo pipefail
. "$(dirname "$0")/venv.sh"
venv onnxruntime tests/e2e/onnx-requirements.txt
echo "$venv/bin/python3"
