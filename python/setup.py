# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say: which Pythons a wheel is for (python/wheel.sh makes those of one machine).

The client of REST is of every machine. Where the library of members lies in starling/lib, the wheel
is of this one, but still of every Python, since ctypes opens the library.
"""
import glob

from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return bool(glob.glob("starling/lib/*.so"))


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(distclass=WithLibrary, cmdclass={"bdist_wheel": Wheel})
