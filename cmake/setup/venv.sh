# SPDX-License-Identifier: Apache-2.0
# For the scripts beside this one, which source it: programs of Python, pinned, outside the tree.
#
#   venv NAME REQUIREMENTS [PIP_OPTION]...
#
# leaves in $venv the folder of an environment with what the file REQUIREMENTS, named from the root of the
# tree, lists. Does nothing where it is installed already; of several at once, one installs it.
venv() {
  local name=$1 requirements lock
  requirements=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/$2
  shift 2
  venv="${XDG_CACHE_HOME:-$HOME/.cache}/starling/$name-$(sha256sum "$requirements" | cut -c1-12)"
  mkdir -p "$(dirname "$venv")"
  exec {lock}>"$venv.lock"
  flock "$lock"
  if [ ! -e "$venv/complete" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@" -r "$requirements" >&2
    touch "$venv/complete"
  fi
  exec {lock}>&-
}
