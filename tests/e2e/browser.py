# SPDX-License-Identifier: Apache-2.0
"""Where the machine's browser and the page's tools are (playwright-core, axe, ECharts)."""
import os
import shutil
import subprocess
import sys

from home import REPOSITORY

SKIPPED = 77
BROWSERS = ("chromium-headless-shell", "chromium")
OLDEST_NODE = 20  # that playwright-core runs on


def find_tools():
    """The browser's path and the tools' folder; exits where they cannot be had."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout \
        if shutil.which("node") else "v0"
    tools = subprocess.run([os.path.join(REPOSITORY, "cmake/setup/web.sh")], capture_output=True,
                           text=True, check=False)
    lacks = [what for what, there in [
        ("a browser (apt-get install chromium-headless-shell)", browser),
        (f"Node {OLDEST_NODE}", int(node[1:].partition(".")[0]) >= OLDEST_NODE),
        ("the page's tools: " + tools.stderr.strip(), tools.returncode == 0)] if not there]
    if lacks:
        print("SKIPPED, for want of " + "; ".join(lacks), file=sys.stderr)
        sys.exit(SKIPPED)
    return browser, tools.stdout.strip()
