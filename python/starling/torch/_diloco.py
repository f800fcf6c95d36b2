# SPDX-License-Identifier: Apache-2.0
"""DiLoCo (Douillard and others 2023, arXiv:2311.08105): members train by themselves for a while, the inner
steps, and then all make one outer step together, for which the mean of how far they have come is the
gradient: theta := theta - outer_lr * nesterov(theta - mean(theta of each member)).

What all members hold alike is the state after the last outer step: parameters, the inner optimizer, the
outer one's momentum, and the samples that are still to be made up for. It lies in memory of its own, on the host, so
that a member that joins, or a checkpoint, may have it while others are in the midst of inner steps. What
an outer step exchanges is each tensor's difference from it: parameters go through the outer optimizer,
all else (the inner optimizer's tensors, running averages, counts) becomes the mean. So members are equal
bit by bit behind each outer step, and whoever has contributed nothing goes on as the others do.
"""
from __future__ import annotations

import ctypes
import dataclasses
import hashlib
from typing import Any, Sequence

import torch

from starling.torch._state import MOST_TEXT, Segment, State

_COMMITTED = 1  # what the library's reduction says
_MOST_SETTINGS_GROW = 4096  # bytes, beside twice as many as there are at first


@dataclasses.dataclass(frozen=True)
class DiLoCo:
    """How: `inner_steps` by each member alone, then one outer step of SGD with (Nesterov's) momentum."""

    inner_steps: int
    outer_lr: float = 0.7
    momentum: float = 0.9
    nesterov: bool = True

    def __post_init__(self) -> None:
        if self.inner_steps < 1:
            raise ValueError(f"DiLoCo(inner_steps={self.inner_steps}): must be at least 1")
        if not self.outer_lr > 0:
            raise ValueError(f"DiLoCo(outer_lr={self.outer_lr}): must be above 0")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"DiLoCo(momentum={self.momentum}): must be from 0 to below 1")


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """In a type in which differences of its values are right."""
    if not tensor.is_floating_point():
        return tensor.long()
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


class _Part:
    """A tensor of the state: what this member has made of it, and what all hold alike."""

    def __init__(self, own: Segment, elements: int) -> None:
        self.own = own.tensor
        self.kept = own.tensor.detach().to("cpu", copy=True)
        self.segment = Segment(own.name, self.kept, own.in_model)
        self.elements = elements  # of them, those that may change
        self.momentum: torch.Tensor | None = None  # of a parameter that is trained

    def difference(self) -> torch.Tensor:
        return (_wide(self.own.to("cpu")) - _wide(self.kept)).reshape(-1)[:self.elements]

    def add(self, mean: torch.Tensor) -> None:
        """`mean`: of the members' differences."""
        kept = self.kept.view(-1)[:self.elements]
        if kept.is_floating_point():
            kept.add_(mean)
        else:
            kept.copy_(kept.long() + mean.round().long())

    def step(self, mean: torch.Tensor, how: DiLoCo) -> None:
        """As torch.optim.SGD(nesterov=...) does, with what is left behind for a gradient."""
        assert self.momentum is not None
        gradient = -mean.view(self.kept.shape)
        self.momentum.mul_(how.momentum).add_(gradient)
        if how.nesterov:
            gradient = gradient.add(self.momentum, alpha=how.momentum)
        else:
            gradient = self.momentum
        self.kept.sub_(gradient, alpha=how.outer_lr)


class Outer:
    """The state between outer steps, and the exchange of one. Confined to the loop's thread.

    `samples`: of an outer step, when nothing has to be made up for.
    """

    def __init__(self, run: Any, state: State, how: DiLoCo, samples: int, bucket_bytes: int) -> None:
        self._run = run
        self._state = state
        self._how = how
        self.samples = samples
        self._parts = [_Part(one, one.tensor.numel()) for one in state.segments]
        self._settings = next(part for part in self._parts if part.segment.name == "settings")
        self._settings.elements = min(MOST_TEXT, 2 * state.text_bytes + _MOST_SETTINGS_GROW)
        self.segments = [part.segment for part in self._parts]
        trained = {name for name, _ in state.modules.trained}
        for part in self._parts[:len(state.modules.segments)]:
            if part.segment.name in trained:
                part.momentum = torch.zeros_like(part.kept)
                self.segments.append(Segment(f"diloco/momentum/{part.segment.name}", part.momentum, False))
        # Samples that a lost member had, with their steps; as many as two outer steps have.
        self._left = torch.zeros((2 * samples, 2), dtype=torch.int64)
        self._left_count = torch.zeros(1, dtype=torch.int64)
        self.segments += [Segment("diloco/left", self._left, False),
                          Segment("diloco/leftCount", self._left_count, False)]
        self._plan(bucket_bytes)
        self._flat = torch.empty(0)

    def _plan(self, bucket_bytes: int) -> None:
        """Buckets of one size, whatever lies in them, and one of who has contributed what."""
        self._elements = sum(part.elements for part in self._parts)
        size = max(1, bucket_bytes // 4)
        self._ends = [min(begin + size, self._elements) for begin in range(0, self._elements, size)]
        for begin, end in zip([0, *self._ends], self._ends):
            self._run.add_bucket(end - begin)
        self._run.add_bucket(1 + 2 * self.samples)

    def open(self) -> None:
        """The library has begun: its memory is there."""
        address, size = self._run.gradients()
        memory = (ctypes.c_float * size).from_address(address)
        self._flat = torch.frombuffer(memory, dtype=torch.float32)

    @property
    def left(self) -> tuple[tuple[int, int], ...]:
        """What is to be made up for: samples, each behind its step."""
        return tuple((step, one) for step, one in self._left[:int(self._left_count)].tolist())

    def take(self) -> None:
        """What this member has is what all hold alike."""
        with torch.no_grad():
            self._state.gather()
            for part in self._parts:
                part.kept.copy_(part.own)

    def give(self) -> None:
        """This member goes on with what all hold alike."""
        with torch.no_grad():
            for part in self._parts:
                part.own.copy_(part.kept)
            self._state.adopt()

    def digest(self) -> bytes:
        """Of what all hold alike."""
        digest = hashlib.blake2b(digest_size=16)
        for one in self.segments:
            size = one.tensor.numel() * one.tensor.element_size()
            digest.update(ctypes.string_at(one.tensor.data_ptr(), size))
        return digest.digest()

    def reduce(self, weight: float, made: range) -> bool:
        """Whether the outer step counts. `made`: which samples of its work this member has trained with;
        of weight 0 nothing is contributed."""
        if weight > 0:
            with torch.no_grad():
                self._fill(weight, made)
        return bool(self._run.reduce(weight) == _COMMITTED)

    def _fill(self, weight: float, made: range) -> None:
        self._state.gather()
        if self._state.text_bytes > self._settings.elements:
            raise RuntimeError(f"the settings of optimizer and scheduler have grown to "
                               f"{self._state.text_bytes} bytes, from half of {self._settings.elements} at most")
        begin, bucket = 0, 0
        for part in self._parts:
            end = begin + part.elements
            self._flat[begin:end].copy_(part.difference()).mul_(weight)
            begin = end
            while bucket < len(self._ends) and self._ends[bucket] <= end:
                self._run.ready(bucket)
                bucket += 1
        beside = self._flat[self._elements:]
        beside.zero_()
        beside[0] = weight
        beside[1 + made.start:1 + made.stop] = weight
        self._run.ready(bucket)

    def step(self, work: Sequence[tuple[int, int]], whole: bool) -> None:
        """The outer step, once it counts. `whole`: all samples of its `work` have been trained with;
        else those that were not are made up for."""
        beside = self._flat[self._elements:].tolist()
        with torch.no_grad():
            if beside[0] > 0:  # else nobody has contributed anything
                self._move()
            missing = [] if whole else [one for one, mean in zip(work, beside[1:]) if mean == 0]
            self._left_count.fill_(len(missing))
            self._left.zero_()
            if missing:
                self._left[:len(missing)] = torch.tensor(missing, dtype=torch.int64)

    def _move(self) -> None:
        begin = 0
        for part in self._parts:
            mean = self._flat[begin:begin + part.elements]
            begin += part.elements
            if part.momentum is not None:
                part.step(mean, self._how)
                continue
            if part is self._settings and (mean - mean.round()).abs().max() > 0.01:
                raise RuntimeError("the members' schedulers or hyperparameters have become different in "
                                   "their inner steps: let them depend on the number of steps, and on "
                                   "nothing that a member alone has seen")
            part.add(mean)
