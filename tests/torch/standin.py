# SPDX-License-Identifier: Apache-2.0
"""The device of standin_device.cc, for tests where no GPU is."""
import os

import torch

NAME = "libtorch_standin_device.so"


def path():
    """Of the library; None where it was not built."""
    here = os.path.dirname(os.path.abspath(__file__))
    folder = os.environ.get("STARLING_BIN", os.path.join(here, "../../build/release/bin"))
    found = os.path.join(folder, NAME)
    return found if os.path.exists(found) else None


def fits():
    """It is built for one version of PyTorch, Debian's, and no other can load it."""
    return path() is not None and torch.__version__.startswith("1.13.")


def load():
    """The device. To be called once in a process."""
    torch.ops.load_library(path())
    return torch.device("privateuseone:0")
