#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what makes requests up from an OpenAPI document for tests/rest, pinned, outside the tree, and
# prints its program. Does nothing where it is installed already.
set -euo pipefail
. "$(dirname "$0")/venv.sh"
venv schemathesis tests/rest/requirements.txt
echo "$venv/bin/schemathesis"
