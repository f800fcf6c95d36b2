# SPDX-License-Identifier: Apache-2.0
"""Jobs with spec.reproducible: the same bits for any number of workers, whoever died meanwhile.

The library hands a step out in the batch's groups, whoever computes them, and adds their gradients in
one order. What is left to see to here: that a group's gradients depend on the step, the group and the
samples alone, and not on who computes them, beside what, and what it did before. So each group begins
with the same random numbers and the same running averages (_loop.py), each sample is read with its own
random numbers, on one thread, by operations that PyTorch calls deterministic; and members whose
arithmetic is another are not let in (identity).
"""
from __future__ import annotations

import ctypes
import json
import os
import random
import re
import sys
from typing import Any, Sequence

import torch
import torch.utils.data

import starling.embed

_LARGEST = 0x7FFFFFFFFFFFFFFF


def sow(*what: int) -> None:
    """Random numbers from here on depend on these numbers alone, those of all devices too."""
    seed = hash(what) & _LARGEST  # of whole numbers: the same in every process
    torch.manual_seed(seed)  # seeds every GPU's generator as well, where there are any
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed & 0xFFFFFFFF)


def begin() -> None:
    """When this package is imported: what the program makes before its loop, such as a model's first
    parameters, is the same in each run."""
    if not starling.embed._opened:
        return
    spec = json.loads(starling.embed._opened[-1].spec())
    if not spec.get("reproducible"):
        return
    sow(spec.get("seed", 1))
    torch.set_num_threads(1)
    # Without it PyTorch refuses cuBLAS; it is read when a process first uses CUDA.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)


def check() -> None:
    """ValueError: the program has undone what makes results reproducible."""
    if torch.get_num_threads() != 1:
        raise ValueError(f"the program computes with {torch.get_num_threads()} threads, on whose number "
                         "sums depend: leave out torch.set_num_threads, or spec.reproducible")
    if not torch.are_deterministic_algorithms_enabled():
        raise ValueError("the program allows operations that are not deterministic: leave out "
                         "torch.use_deterministic_algorithms(False), or spec.reproducible")
    if torch.backends.cudnn.benchmark:
        raise ValueError("cuDNN chooses its algorithms by their speed, at each member for itself: leave out "
                         "torch.backends.cudnn.benchmark = True, or spec.reproducible")


def _blas() -> str:
    """Which of its kernels OpenBLAS has chosen; other libraries do not say it."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for path in sorted({line.split()[-1] for line in maps if "openblas" in line}):
            try:
                name = ctypes.CDLL(path).openblas_get_corename
            except (OSError, AttributeError):
                continue
            name.restype = ctypes.c_char_p
            return str(name().decode())
    return "unknown"


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        found = re.search(r"^vendor_id\s*:\s*(\S+)", file.read(), re.MULTILINE)
    return found.group(1) if found else "unknown"


def _kind(device: torch.device) -> str:
    if device.type != "cuda":
        return str(device.type)
    found = torch.cuda.get_device_properties(device)
    libraries = f"cuda{torch.version.cuda}/cudnn{torch.backends.cudnn.version()}"
    return f"{found.name}/{found.major}.{found.minor}/{libraries}".replace(" ", "-")


def identity(devices: Sequence[torch.device] = ()) -> str:
    """What results depend on beside the program and its data: members that differ are not let in."""
    built = torch.__config__.show()
    capability = re.search(r"CPU capability usage: *(\S+)", built)
    dnnl = re.search(r"MKL-DNN v(\S+)", built)
    beside = f" devices={','.join(_kind(one) for one in devices)}" if devices else ""
    return (f"blas={_blas()} cpu={_processor()}/{capability.group(1) if capability else 'unknown'} "
            f"dnnl={dnnl.group(1) if dnnl else 'none'} threads={torch.get_num_threads()} "
            f"torch={torch.__version__}{beside}")


class Sown(torch.utils.data.Dataset[Any]):
    """The program's data set, asked for (index, epoch): what is random in a sample, such as how an image
    is cut, depends on these, whoever reads it and whatever was read before."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset = dataset
        self._seed = seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: tuple[int, int]) -> Any:
        index, epoch = key
        sow(self._seed, epoch, index)
        return self.dataset[index]

    def __getattr__(self, name: str) -> Any:
        """For a worker_init_fn, which looks at what the program has given to its loader."""
        if name.startswith("_") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)
