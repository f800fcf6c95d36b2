#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python client: its types hold under mypy --strict, and pip installs it with them.
set -euo pipefail
cd "$(dirname "$0")/../.."
programs=$(cmake/setup/python-tools.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r python "$work/python"
cd "$work/python"
"$programs/mypy" --cache-dir "$work/cache" >"$work/told" || { cat "$work/told" >&2; exit 1; }
# A person's own program, against the package as it was installed.
"$programs/pip" install --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index \
  --target "$work/site" . || { echo "python: pip does not install it" >&2; exit 1; }
cat >"$work/program.py" <<'PROGRAM'
from starling import Client

client: Client = Client("http://127.0.0.1:1", "token")
STEPS: int = client.get("digits")["status"]["progress"]["step"] if client is None else 0
PROGRAM
cd "$work"
PYTHONPATH=$work/site "$programs/python3" -I -c "import sys; sys.path.insert(0, '$work/site'); exec(open('$work/program.py').read())"
MYPYPATH=$work/site "$programs/mypy" --strict --cache-dir "$work/cache" program.py >"$work/told" ||
  { cat "$work/told" >&2; exit 1; }
echo "python: mypy --strict passes, and pip installs the package with its types"
