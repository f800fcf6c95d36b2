#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every source file names its licence within its first two lines."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATTERNS = ["*.h", "*.cc", "*.cu", "*.py", "*.sh", "*.proto", "*.cmake", "CMakeLists.txt", "Makefile",
            "*.ts", "*.tsx", "*.mjs", "*.css", "*.html"]


def main():
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *PATTERNS], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout.split()
    missing = [name for name in files if (ROOT / name).exists() and
               not any("SPDX-License-Identifier: Apache-2.0" in line
                       for line in (ROOT / name).read_text().splitlines()[:2])]
    for name in missing:
        print(f"{name}: its first line must be the comment SPDX-License-Identifier: Apache-2.0")
    if not missing:
        print(f"licence: {len(files)} files name it")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
