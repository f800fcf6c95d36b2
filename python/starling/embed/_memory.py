# SPDX-License-Identifier: Apache-2.0
"""What the library is told of an array: where it lies, and what it holds.

Whatever shows its bytes to Python (PEP 3118) will do: numpy's arrays, array.array, bytearray,
ctypes' arrays. To add a type: a line in the table.
"""
from __future__ import annotations

import ctypes
from typing import Any

# By the buffer's format and the bytes of an element; as safetensors writes them.
_TYPES = {("f", 4): "F32", ("d", 8): "F64", ("e", 2): "F16", ("?", 1): "BOOL", ("b", 1): "I8",
          ("B", 1): "U8", ("h", 2): "I16", ("i", 4): "I32", ("l", 4): "I32", ("l", 8): "I64",
          ("q", 8): "I64"}


class Memory:
    """An array's memory; it stays where it is for as long as this lives."""

    def __init__(self, name: str, array: Any) -> None:
        try:
            view = memoryview(array)
        except TypeError:
            raise TypeError(f"{name}: {type(array).__name__} shows no memory; give a numpy array, "
                            "an array.array or a bytearray") from None
        if view.readonly or not view.c_contiguous:
            raise ValueError(f"{name}: its memory must be writable and without gaps")
        dtype = _TYPES.get((view.format.lstrip("@=<"), view.itemsize))
        if dtype is None:
            raise TypeError(f"{name}: elements of format {view.format!r} are not known; use "
                            f"{', '.join(sorted(set(_TYPES.values())))}")
        self.dtype = dtype
        self.shape = tuple(view.shape or ())
        self.elements = view.nbytes // view.itemsize
        flat = view.cast("B") if view.format != "B" or view.ndim != 1 else view
        self._keeps = (ctypes.c_char * view.nbytes).from_buffer(flat)
        self.address = ctypes.addressof(self._keeps)
