# SPDX-License-Identifier: Apache-2.0
"""Gradients on their way: hooks hand each to the library while backward goes on, and the end of backward
waits for the sum.

The members' gradients are means over their shares; each is multiplied with the share's weight, and the
library divides the sum by the sum of the weights, so that what comes back is the mean over the whole
batch. One bucket more carries which parameters had a gradient at all (an optimizer passes over those
that had none anywhere, as it does with one process), and the running averages of the forward pass.

Gradients of a device are multiplied there, and begin their way to the library's memory at once. A bucket
is handed over when all of it has arrived: later hooks ask whether it has, and the end of backward waits.
With several devices each has a thread of hooks.
"""
from __future__ import annotations

import collections
import ctypes
import threading
from typing import Any, NamedTuple, Sequence

import torch

from starling.torch._device import Transfer, copy, devices_of, page_lock, settle_here, transfer_of

COMMITTED = 1  # what the library's reduction says


class _Place:
    """A parameter, where its gradient lies in the flat memory, and the bucket that is in."""

    def __init__(self, name: str, parameter: torch.nn.Parameter, begin: int, bucket: int) -> None:
        self.name = name
        self.parameter = parameter
        self.begin = begin
        self.bucket = bucket
        self.view: torch.Tensor
        self.transfer: Transfer | None = None  # to there, from a device
        self.sum: torch.Tensor | None = None   # on the device, until it has arrived
        # The sum is the parameter's gradient where it lies: else it is copied there.
        self.lent = False
        self.written = False  # it had a gradient in this step
        self.left = False     # and nothing more is added to it


class _OnItsWay(NamedTuple):
    """A bucket on its way: what tells when each transfer has brought its part."""

    bucket: int
    marks: list[tuple[Transfer, Any]]


class Gradients:
    """Confined to the thread of the loop and to those that run its backward pass.

    `run` is the library's (starling.embed). The buckets are told when this is made; `open` when its
    memory is there. `zeros`: gradients of a step that does not count are zeros, for whoever takes their
    absence for a mistake (a GradScaler does); else there are none.
    """

    _lends = True  # its memory to parameters, as their gradients

    def __init__(self, run: Any, parameters: Sequence[tuple[str, torch.nn.Parameter]],
                 buffers: Sequence[tuple[str, torch.Tensor]], bucket_bytes: int,
                 zeros: bool = False) -> None:
        self._run = run
        self._zeros = zeros
        self._buffers = [one for _, one in buffers if one.is_floating_point()]
        self._places: list[_Place] = []
        self._sizes: list[int] = []   # of each bucket, in numbers
        self._waiting: list[int] = []  # how many of each bucket's gradients are still to come
        self._counts: list[int] = []
        self._plan(parameters, bucket_bytes)
        self._nodes: list[Any] = []  # kept, or hooks on them would go
        self._lock = threading.Lock()  # of hooks
        self._devices = devices_of([one.parameter for one in self._places] + self._buffers)
        self._transfers: list[Transfer] = []
        self._transfers_of: list[list[Transfer]] = [[] for _ in self._sizes]  # by bucket
        self._on_their_way: collections.deque[_OnItsWay] = collections.deque()
        self._flat = torch.empty(0)
        self._weight = 0.0      # of the part at hand
        self._sum = 0.0         # of those before
        self._left = 0          # parts behind the one at hand
        self._scale = 1.0
        self._armed = False
        self._begun = False
        self.done = False       # backward has ended in this part
        self.committed = False  # in the last one, and the step counts

    def _plan(self, parameters: Sequence[tuple[str, torch.nn.Parameter]], bucket_bytes: int) -> None:
        begin = 0
        for name, parameter in reversed(parameters):  # as backward comes to them
            if not self._sizes or self._sizes[-1] * 4 >= bucket_bytes:
                self._sizes.append(0)
                self._counts.append(0)
            self._places.append(_Place(name, parameter, begin, len(self._sizes) - 1))
            self._sizes[-1] += parameter.numel()
            self._counts[-1] += 1
            begin += parameter.numel()
        self._last = len(self._sizes)  # the bucket of what is no gradient
        self._sizes.append(len(self._places) + sum(one.numel() for one in self._buffers))
        for size in self._sizes:
            self._run.add_bucket(size)

    def open(self) -> None:
        """The library has begun: its memory is there."""
        self._flat = self._memory()
        for device in self._devices:
            if page_lock(self._flat, device):
                break  # for all of them
        transfers = {device: transfer_of(device) for device in self._devices}
        self._transfers = list(transfers.values())
        for place in self._places:
            place.transfer = transfers.get(place.parameter.device)
            if place.transfer is not None and place.transfer not in self._transfers_of[place.bucket]:
                self._transfers_of[place.bucket].append(place.transfer)
            end = place.begin + place.parameter.numel()
            place.view = self._view(place.name, place.parameter,
                                    self._flat[place.begin:end].view(place.parameter.shape))
            place.lent = (self._lends and place.transfer is None
                          and place.parameter.dtype == torch.float32)
            self._hook(place)
        self._beside = self._flat[sum(self._sizes[:-1]):]

    def _memory(self) -> torch.Tensor:
        """Of all buckets, one behind another."""
        address, size = self._run.gradients()
        memory = (ctypes.c_float * size).from_address(address)
        return torch.frombuffer(memory, dtype=torch.float32)

    def _view(self, name: str, parameter: Any, whole: torch.Tensor) -> torch.Tensor:
        """What of a parameter's place this process fills."""
        return whole

    def _gradient(self, parameter: Any) -> torch.Tensor | None:
        """What this process has of it, where it may be written."""
        gradient: torch.Tensor | None = parameter.grad
        return gradient

    def _set_gradient(self, parameter: Any, mean: torch.Tensor) -> None:
        """A new one, for a parameter that has none."""
        parameter.grad = mean.to(device=parameter.device, dtype=parameter.dtype, copy=True)

    def _hook(self, place: _Place) -> None:
        parameter = place.parameter
        if hasattr(parameter, "register_post_accumulate_grad_hook"):  # from PyTorch 2.1 on
            parameter.register_post_accumulate_grad_hook(lambda _: self._on_gradient(place))
            return
        node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_: self._on_gradient(place))
        self._nodes.append(node)

    def begin(self, parts: int) -> None:
        """A step begins, which has so many parts: what they add up to is so many times their mean, as
        with one process that calls backward so often."""
        if any(place.sum is not None for place in self._places):
            self._await_all()  # a backward pass has raised an error
            for transfer in self._transfers:
                transfer.wait(transfer.mark())
        self._waiting = list(self._counts)
        for place in self._places:
            place.written = place.left = False
            place.sum = None
        self._sum = 0.0
        self._left = parts
        self._scale = float(parts)
        self.committed = False

    def begin_part(self, weight: float) -> None:
        """The next part begins; its gradients count so much."""
        for place in self._places:
            place.parameter.grad = None
        self._left -= 1
        self._weight = weight
        self._armed = True
        self._begun = self.done = False

    def end(self) -> None:
        """No step: gradients from here on are nobody's business."""
        self._armed = False

    def close(self) -> None:
        """Training is over, and the library's memory may go: gradients that lie in it are copied."""
        for place in self._places:
            if place.lent and place.parameter.grad is not None:
                place.parameter.grad = place.parameter.grad.clone()

    def weigh(self, weight: float) -> None:
        if self._begun:
            raise RuntimeError("loader.weight() is for before loss.backward(): gradients have left with "
                               "another weight")
        self._weight = float(weight)

    def _on_gradient(self, place: _Place) -> None:
        if self._armed:
            with self._lock:
                self._note(place)

    def _note(self, place: _Place) -> None:
        if self.done:
            raise RuntimeError("loss.backward() was called again for one batch: its gradients have left "
                               "already; add the losses up and call it once, or give "
                               "elastic(..., accumulate=n)")
        if not self._begun:
            self._begun = True
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        self._write(place)

    def _write(self, place: _Place) -> None:
        """Adds the part's gradient; with the last part the bucket may leave."""
        gradient = self._gradient(place.parameter)
        with torch.no_grad():
            if not place.written and (gradient is None or self._weight == 0):
                place.view.zero_()
            elif gradient is not None and self._weight != 0:
                self._add(place, gradient, self._weight * self._scale)
            place.written = place.written or gradient is not None
            if self._left > 0:
                return
            if place.transfer is not None and place.sum is not None:
                place.transfer.carry(f"the gradient of {place.name}", place.view, place.sum)
        place.left = True
        self._waiting[place.bucket] -= 1
        if self._waiting[place.bucket] == 0:
            self._hand_over(place.bucket)

    def _hand_over(self, bucket: int) -> None:
        marks = [(one, one.mark()) for one in self._transfers_of[bucket]]
        self._on_their_way.append(_OnItsWay(bucket, marks))
        while self._on_their_way and all(one.passed(mark) for one, mark in self._on_their_way[0].marks):
            self._arrived(self._on_their_way.popleft())

    def _arrived(self, it: _OnItsWay) -> None:
        if it.marks:
            for place in self._places:
                place.sum = None if place.bucket == it.bucket else place.sum
        self._run.ready(it.bucket)

    def _await_all(self) -> list[_OnItsWay]:
        """Waits for all that are on their way."""
        arrived = list(self._on_their_way)
        self._on_their_way.clear()
        for it in arrived:
            for transfer, mark in it.marks:
                transfer.wait(mark)
        return arrived

    @staticmethod
    def _add(place: _Place, gradient: torch.Tensor, weight: float) -> None:
        if gradient.is_sparse:
            raise RuntimeError(f"the gradient of {place.name} is sparse; make it dense (sparse=False): "
                               "sums travel as a whole")
        if place.transfer is not None:
            if place.sum is None:
                place.sum = gradient.float() * weight
            else:
                place.sum.add_(gradient, alpha=weight)
        elif place.written:
            place.view.add_(gradient, alpha=weight)
        elif gradient.dtype == torch.float32:
            torch.mul(gradient, weight, out=place.view)
        else:
            place.view.copy_(gradient).mul_(weight)

    def _finish(self) -> None:
        """Backward has come to its end; after the last part's, whoever waits for it gets the sums."""
        self.done = True
        self._sum += self._weight
        if self._left > 0:
            return
        had = [place.written for place in self._places]
        for place in self._places:
            if not place.left:
                self._write(place)
        with torch.no_grad():
            self._write_beside(had)
        for it in self._await_all():
            self._arrived(it)
        self._run.ready(self._last)
        self.committed = self._run.reduce(self._sum) == COMMITTED
        with torch.no_grad():
            self._take()

    def _write_beside(self, had: list[bool]) -> None:
        if self._sum == 0:
            self._beside.zero_()
            return
        self._beside[:len(had)] = torch.tensor(had, dtype=torch.float32).mul_(self._sum)
        averages = self._beside[len(had):]
        for _, mine in self._averages():
            values = torch.cat([buffer.reshape(-1).float() for buffer, _, _ in mine]).to("cpu").mul_(self._sum)
            read = 0
            for buffer, begin, end in mine:
                averages[begin:end] = values[read:read + buffer.numel()]
                read += buffer.numel()

    def _averages(self) -> list[tuple[torch.device, list[tuple[torch.Tensor, int, int]]]]:
        """By device, for each crosses in one piece: buffers with the stretch of their bucket's numbers."""
        found: dict[torch.device, list[tuple[torch.Tensor, int, int]]] = {}
        begin = 0
        for buffer in self._buffers:
            end = begin + buffer.numel()
            found.setdefault(buffer.device, []).append((buffer, begin, end))
            begin = end
        return list(found.items())

    def _take(self) -> None:
        used = self._beside[:len(self._places)].tolist()
        for place, share in zip(self._places, used):
            parameter = place.parameter
            gradient = self._gradient(parameter)
            if not self.committed and self._zeros and gradient is not None:
                gradient.zero_()
            elif not self.committed or share == 0:
                parameter.grad = None
            elif place.lent:
                parameter.grad = place.view
            elif gradient is None:
                self._set_gradient(parameter, place.view)
            else:
                copy(f"the gradient of {place.name}", gradient, place.view, wait=False)
        if self.committed:
            averages = self._beside[len(self._places):]
            for device, mine in self._averages():
                values = averages.to(device)
                for buffer, begin, end in mine:
                    buffer.copy_(values[begin:end].view(buffer.shape))
        # The library's memory is read until then. The optimizer's kernels come behind in the same streams.
        settle_here(self._devices)
