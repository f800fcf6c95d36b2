# SPDX-License-Identifier: Apache-2.0
"""The functions of starling_embed.h, by ctypes: a method each, which raises where C returns a code.

Addresses are plain integers, so that whatever holds the memory may be above it: arrays, tensors. A
call releases the interpreter. To add a function: a line in the table, and a method.
"""
from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starling.errors import StarlingError

OK, OVER, LEFT, BAD_INPUT, FAILED, MISUSE, STATE_WANTED = range(7)
DROPPED, COMMITTED, PARTIAL = range(3)
MODEL, COPIED = 1, 2
STATE_REPLACED, REPEATED, INTERRUPTED, LAST = 1, 2, 4, 8
_ABI = 1
_NAME = "libstarling_embed.so"


class LoopError(StarlingError):
    """A member's loop cannot go on; `code` is the library's (BAD_INPUT, FAILED, MISUSE)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class CStep(ctypes.Structure):
    """starling_step."""

    _fields_ = [("number", ctypes.c_int64), ("epoch", ctypes.c_int64),
                ("step_of_epoch", ctypes.c_int64), ("steps_per_epoch", ctypes.c_int64),
                ("batch", ctypes.c_int64), ("position", ctypes.c_int64), ("count", ctypes.c_int64),
                ("ids", ctypes.POINTER(ctypes.c_int64)), ("view", ctypes.c_uint64),
                ("rank", ctypes.c_int32), ("members", ctypes.c_int32), ("flags", ctypes.c_uint32)]


_RUN = ctypes.c_void_p
_I64 = ctypes.c_int64
_TEXT = ctypes.c_char_p
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "abi": (ctypes.c_int, []),
    "last_error": (_TEXT, []),
    "open": (ctypes.c_int, [ctypes.POINTER(_TEXT), ctypes.c_size_t, ctypes.POINTER(_RUN)]),
    "free": (None, [_RUN]),
    "spec": (_TEXT, [_RUN]),
    "set_samples": (ctypes.c_int, [_RUN, _I64, _I64, _TEXT]),
    "set_end": (ctypes.c_int, [_RUN, _I64, _I64]),
    "set_identity": (ctypes.c_int, [_RUN, _TEXT]),
    "add_metric": (ctypes.c_int, [_RUN, _TEXT]),
    "add_state": (ctypes.c_int, [_RUN, _TEXT, _TEXT, ctypes.c_size_t, ctypes.POINTER(_I64),
                                 ctypes.c_void_p, ctypes.c_uint32]),
    "add_bucket": (ctypes.c_int, [_RUN, _I64]),
    "start": (ctypes.c_int, [_RUN]),
    "next": (ctypes.c_int, [_RUN, ctypes.POINTER(CStep)]),
    "gradients": (ctypes.c_int, [_RUN, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(_I64)]),
    "ready": (ctypes.c_int, [_RUN, _I64]),
    "add": (ctypes.c_int, [_RUN, _I64, _TEXT, ctypes.c_void_p, _I64, ctypes.c_double]),
    "log": (ctypes.c_int, [_RUN, _I64, ctypes.c_double]),
    "log_sum": (ctypes.c_int, [_RUN, _I64, ctypes.c_double, ctypes.c_double]),
    "mean": (ctypes.c_int, [_RUN, _I64, ctypes.POINTER(ctypes.c_double)]),
    "reduce": (ctypes.c_int, [_RUN, ctypes.c_double, ctypes.POINTER(ctypes.c_int32)]),
    "take": (ctypes.c_int, [_RUN, _I64, _TEXT, ctypes.c_void_p, _I64]),
    "order": (ctypes.c_int, [_RUN, _I64, _I64, _I64, ctypes.c_void_p, _I64, ctypes.POINTER(_I64)]),
    "portions": (ctypes.c_int, [_RUN, _I64, _I64, _I64, ctypes.c_void_p, _I64,
                                ctypes.POINTER(_I64)]),
    "view": (ctypes.c_int, [_RUN, ctypes.POINTER(CStep)]),
    "leave": (ctypes.c_int, [_RUN]),
    "close": (ctypes.c_int, [_RUN]),
    "abandon": (None, [_RUN]),
}


def _candidates() -> list[Path]:
    """Where the library may lie: as told, in the wheel, beside the programs of this tree."""
    told = os.environ.get("STARLING_EMBED_LIBRARY")
    if told:
        return [Path(told)]
    package = Path(__file__).resolve().parents[1]
    return [package / "lib" / _NAME, *(folder / "build" / "release" / "bin" / _NAME
                                       for folder in package.parents[1:2])]


def _open_library() -> ctypes.CDLL:
    candidates = _candidates()
    for path in candidates:
        if path.exists():
            return ctypes.CDLL(str(path))
    raise LoopError(BAD_INPUT, f"{_NAME} is not at {' nor at '.join(map(str, candidates))}: "
                               "set STARLING_EMBED_LIBRARY to where it lies")


class Library:
    """One member of a job; not more than one in a process."""

    def __init__(self) -> None:
        self._functions: dict[str, Any] = {}
        library = _open_library()
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, f"starling_{name}")
            function.restype = result
            function.argtypes = arguments
            self._functions[name] = function
        found = self._functions["abi"]()
        if found != _ABI:
            raise LoopError(BAD_INPUT, f"{_NAME} speaks version {found}, this package {_ABI}: "
                                       "install the package that came with it")
        self._run = _RUN()

    def _call(self, name: str, *arguments: Any) -> int:
        code: int = self._functions[name](*arguments)
        if code in (BAD_INPUT, FAILED, MISUSE):
            raise LoopError(code, self.last_error())
        return code

    def last_error(self) -> str:
        text: bytes = self._functions["last_error"]()
        return text.decode(errors="replace")

    def open(self, flags: Sequence[str]) -> None:
        encoded = (_TEXT * len(flags))(*(flag.encode() for flag in flags))
        self._call("open", encoded, len(flags), ctypes.byref(self._run))

    def is_open(self) -> bool:
        return bool(self._run)

    def spec(self) -> str:
        text: bytes = self._functions["spec"](self._run)
        return text.decode()

    # Before the start.

    def set_samples(self, samples: int, batch: int, digest: str) -> None:
        self._call("set_samples", self._run, samples, batch, digest.encode())

    def set_end(self, epochs: int, steps: int) -> None:
        self._call("set_end", self._run, epochs, steps)

    def set_identity(self, identity: str) -> None:
        self._call("set_identity", self._run, identity.encode())

    def add_metric(self, name: str) -> None:
        self._call("add_metric", self._run, name.encode())

    def add_state(self, name: str, dtype: str, shape: Sequence[int], address: int,
                  model: bool, copied: bool = False) -> None:
        sides = (_I64 * len(shape))(*shape)
        self._call("add_state", self._run, name.encode(), dtype.encode(), len(shape), sides,
                   address, (MODEL if model else 0) | (COPIED if copied else 0))

    def add_bucket(self, elements: int) -> None:
        self._call("add_bucket", self._run, elements)

    def start(self) -> None:
        self._call("start", self._run)

    # The loop.

    def next(self, step: CStep) -> int:
        """OK, OVER, LEFT or STATE_WANTED."""
        return self._call("next", self._run, ctypes.byref(step))

    def gradients(self) -> tuple[int, int]:
        """Address and elements of all buckets, one after another: 32-bit floats."""
        address, elements = ctypes.c_void_p(), _I64()
        self._call("gradients", self._run, ctypes.byref(address), ctypes.byref(elements))
        return address.value or 0, elements.value

    def ready(self, bucket: int) -> None:
        self._call("ready", self._run, bucket)

    def add(self, bucket: int, dtype: str, address: int, elements: int, scale: float) -> None:
        self._call("add", self._run, bucket, dtype.encode(), address, elements, scale)

    def log(self, metric: int, value: float) -> None:
        self._call("log", self._run, metric, value)

    def log_sum(self, metric: int, total: float, count: float) -> None:
        self._call("log_sum", self._run, metric, total, count)

    def mean(self, metric: int) -> float:
        """Over all members, after COMMITTED."""
        value = ctypes.c_double()
        self._call("mean", self._run, metric, ctypes.byref(value))
        return value.value

    def reduce(self, weight: float) -> int:
        """DROPPED, COMMITTED or PARTIAL."""
        outcome = ctypes.c_int32()
        self._call("reduce", self._run, weight, ctypes.byref(outcome))
        return outcome.value

    def take(self, bucket: int, dtype: str, address: int, elements: int) -> None:
        self._call("take", self._run, bucket, dtype.encode(), address, elements)

    def order(self, step: int, rank: int, members: int) -> list[int]:
        return self._numbers("order", step, rank, members)

    def portions(self, step: int, rank: int, members: int) -> list[list[int]]:
        """The same, as they come with one call of next after another."""
        ids = iter(self.order(step, rank, members))
        return [[next(ids) for _ in range(size)]
                for size in self._numbers("portions", step, rank, members)]

    def _numbers(self, name: str, step: int, rank: int, members: int) -> list[int]:
        count = _I64()
        self._call(name, self._run, step, rank, members, None, 0, ctypes.byref(count))
        found = (_I64 * count.value)()
        self._call(name, self._run, step, rank, members, found, count.value, ctypes.byref(count))
        return list(found)

    def view(self) -> CStep:
        found = CStep()
        self._call("view", self._run, ctypes.byref(found))
        return found

    # The end.

    def leave(self) -> None:
        self._call("leave", self._run)

    def close(self) -> int:
        """OK or STATE_WANTED."""
        return self._call("close", self._run)

    def abandon(self) -> None:
        self._functions["abandon"](self._run)

    def free(self) -> None:
        self._functions["free"](self._run)
        self._run = _RUN()
