# SPDX-License-Identifier: Apache-2.0
"""Tensors that lie on a device, such as a GPU, and their copies in the memory of the host.

The library reads and writes memory of the host alone. What lies on a device therefore has a copy there:
the state one for each of its tensors, which is brought up to date when somebody needs it (Copies), and
gradients the library's flat memory, to which they go while backward is still busy (Transfer).

Any kind of device that PyTorch copies to and from will do: its copies wait for its kernels. On CUDA copies
and backward run at the same time: the host's memory is page-locked, copies of gradients have a stream of
their own, and events tell which of them are done. To do the same for another kind of device: a class
beside CudaTransfer, and a line in transfer_of and in page_lock.
"""
from __future__ import annotations

import sys
from typing import Any, Iterable, Sequence

import torch

from starling.torch._state import Segment

_LEAST_LOCKED = 1 << 16  # bytes; less lies beside other things in its pages
_ALIGNED = 64


def on_host(tensor: torch.Tensor) -> bool:
    return bool(tensor.device.type == "cpu")


def devices_of(tensors: Iterable[torch.Tensor]) -> list[torch.device]:
    """Those beside the host, each once."""
    found = dict.fromkeys(one.device for one in tensors if not on_host(one))
    return sorted(found, key=str)


def copy(name: str, into: torch.Tensor, source: torch.Tensor, wait: bool = True) -> None:
    """RuntimeError names what could not be copied, such as where a device has no memory left."""
    try:
        into.copy_(source, non_blocking=not wait)
    except RuntimeError as error:
        raise RuntimeError(f"{name} could not be copied from {source.device} to {into.device}: "
                           f"{error}") from error


def page_lock(memory: torch.Tensor, device: torch.device) -> bool:
    """Lets CUDA copy to and from it without the processor; without it copies are right, and slower. Whole
    pages are locked, and none twice: so it is for one large piece of memory, and not for many small ones."""
    size = memory.numel() * memory.element_size()
    if device.type != "cuda" or size < _LEAST_LOCKED:
        return False
    try:
        code = int(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), size, 0))
        why = f"cudaHostRegister returned {code}" if code != 0 else ""
    except (RuntimeError, AttributeError) as error:
        why = str(error)
    if why:
        _forget_error(device)
        print(f"starling: {size} bytes of the host's memory are not page-locked, and copies between it and "
              f"{device} take longer ({why}); the machine may have too little free memory",
              file=sys.stderr, flush=True)
    return not why


def _forget_error(device: torch.device) -> None:
    """CUDA tells an error of a call once more behind the next kernel, whose fault it is not."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        pass


def settle(devices: Iterable[torch.device]) -> None:
    """All that was begun on them is done; copies of other kinds than CUDA's have waited by themselves."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def settle_here(devices: Iterable[torch.device]) -> None:
    """As settle, of what was begun in the current streams."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()


def _size_of(segment: Segment) -> int:
    return int(segment.tensor.numel() * segment.tensor.element_size())


def _room_of(segment: Segment) -> int:
    return -(-_size_of(segment) // _ALIGNED) * _ALIGNED


class Copies:
    """The parts of the state as the library is given them. Confined to the loop's thread."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._pairs: list[tuple[Segment, torch.Tensor]] = []
        self._devices = devices_of(one.tensor for one in segments)
        self.given: list[tuple[Segment, torch.Tensor, bool]] = []  # its memory, and whether that is a copy
        copied = [one for one in segments if not on_host(one.tensor)]
        whole = torch.zeros(sum(map(_room_of, copied)), dtype=torch.uint8)
        for device in self._devices:
            if page_lock(whole, device):
                break  # for all of them
        begin = 0
        for one in segments:
            memory = one.tensor
            if not on_host(one.tensor):
                memory = whole[begin:begin + _size_of(one)].view(one.tensor.dtype).view(one.tensor.shape)
                begin += _room_of(one)
                self._pairs.append((one, memory))
            self.given.append((one, memory, memory is not one.tensor))

    def refresh(self) -> None:
        """The library is about to read them."""
        settle(self._devices)  # whichever streams the program has used
        for one, memory in self._pairs:
            copy(one.name, memory, one.tensor, wait=False)
        settle(self._devices)

    def spread(self) -> None:
        """The library has written them."""
        with torch.no_grad():
            for one, memory in self._pairs:
                copy(one.name, one.tensor, memory, wait=False)
        settle(self._devices)


class Transfer:
    """Brings gradients from a device to the host, in order. Here each copy is done when carry returns."""

    def carry(self, name: str, into: torch.Tensor, source: torch.Tensor) -> None:
        """Begins a copy; `source` is kept as it is until the next mark is passed."""
        copy(name, into, source)

    def mark(self) -> Any:
        """Behind what was begun so far; what it returns is for passed and wait."""
        return None

    def passed(self, mark: Any) -> bool:
        """Whether all before the mark is done."""
        return True

    def wait(self, mark: Any) -> None:
        """Until it is."""


class CudaTransfer(Transfer):
    """A stream of its own, which waits for the kernels that make what it copies, and for no others."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def carry(self, name: str, into: torch.Tensor, source: torch.Tensor) -> None:
        # In a hook of backward the current stream is that of the operation that has made the gradient.
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            copy(name, into, source, wait=False)

    def mark(self) -> Any:
        event = torch.cuda.Event()
        event.record(self._stream)
        return event

    def passed(self, mark: Any) -> bool:
        return bool(mark.query())

    def wait(self, mark: Any) -> None:
        mark.synchronize()


def transfer_of(device: torch.device) -> Transfer:
    return CudaTransfer(device) if device.type == "cuda" else Transfer()


def cuda_devices() -> list[int]:
    """Those whose random numbers the program may have drawn: none before it has used CUDA."""
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
