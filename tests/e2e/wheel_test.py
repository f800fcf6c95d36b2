# SPDX-License-Identifier: Apache-2.0
"""The wheel that `make wheel` writes: installed into an environment of its own, it needs nothing of this tree."""
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

from home import BIN, REPOSITORY, read

PROGRAM = """
import importlib.metadata
import starling
from starling import Client
from starling.embed import _library
library = _library.Library()  # opens the shared one, and compares versions
here = starling.__file__.rpartition("/starling/")[0]
maps = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
strangers = [path for path in maps if "libgrpc" in path or "libprotobuf" in path or "libabsl" in path]
assert strangers and all(path.startswith(here) for path in strangers), strangers
assert any(path == here + "/starling/lib/libstarling_embed.so" for path in maps), maps
assert importlib.metadata.version("starling-elastic") == starling.__version__
print(starling.__version__)
"""


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="starling-wheel-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        made = subprocess.run([os.path.join(REPOSITORY, "python/wheel.sh"), BIN, f"{cls.folder}/dist"],
                              capture_output=True, text=True, check=False, timeout=240)
        assert made.returncode == 0, made.stdout + made.stderr
        cls.wheel = made.stdout.strip()

    def test_is_for_every_python_and_for_systems_no_newer_than_where_it_was_made(self):
        name = os.path.basename(self.wheel)
        self.assertRegex(name, r"^starling_elastic-[0-9.]+-py3-none-manylinux_2_[0-9]+_\w+\.whl$")
        self.assertEqual([self.wheel], glob.glob(f"{self.folder}/dist/*"))

    def test_installed_alone_it_brings_its_library_and_all_that_needs(self):
        venv = f"{self.folder}/venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=120)
        subprocess.run([f"{venv}/bin/pip", "install", "--quiet", "--disable-pip-version-check",
                        "--no-index", self.wheel], check=True, timeout=120)
        done = subprocess.run([f"{venv}/bin/python", "-I", "-c", PROGRAM], cwd="/",
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(0, done.returncode, done.stderr)
        project = re.search(r"project\(starling VERSION (\S+)",
                            read(os.path.join(REPOSITORY, "CMakeLists.txt"))).group(1)
        self.assertEqual(project, done.stdout.strip(), "the package's version is the project's")

    def test_without_a_library_nothing_is_packed(self):
        done = subprocess.run([os.path.join(REPOSITORY, "python/wheel.sh"), self.folder,
                               f"{self.folder}/none"], capture_output=True, text=True, check=False,
                              timeout=60)
        self.assertEqual(1, done.returncode)
        self.assertIn("there is no", done.stderr)


if __name__ == "__main__":
    unittest.main()
