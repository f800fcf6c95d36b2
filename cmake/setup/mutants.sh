#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what reads C++ for tests/mutation outside the tree, pinned, and prints the Python that has
# it.
set -euo pipefail
. "$(dirname "$0")/venv.sh"
venv mutants tests/mutation/requirements.txt
echo "$venv/bin/python3"
