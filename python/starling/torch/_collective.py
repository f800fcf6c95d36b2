# SPDX-License-Identifier: Apache-2.0
"""Long work that all members share in an iteration of the loop, such as an evaluation.

    @starling.collective
    def evaluate(index, of):                    # one of so many parts, together all of it
        part = test[index::of]
        return {"accuracy": (right(model, part), len(part))}   # a sum, and what to divide by

    for inputs, labels in loader:
        if loader.step % 100 == 1:
            evaluate(loader)                    # before loss.backward(): of the state before this step
        ...
        loss.backward()
        optimizer.step()
        if loader.committed and loader.step % 100 == 1:
            print(loader.mean("accuracy"))      # over all members' parts

The sums travel with the step's gradients, and so they count or do not as the step does: where a member
is lost meanwhile the iteration comes again, and with it the work, cut for who is left. Who joins is in
the same iteration as the others, and does its part. However long it takes, nobody is taken for dead.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from starling.torch._device import cuda_devices
from starling.torch._loop import Loader

Sums = Mapping[str, "tuple[float, float]"]


class Collective:
    """Made by `collective`."""

    def __init__(self, function: Callable[..., Sums]) -> None:
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, loader: Loader, *arguments: Any, **options: Any) -> None:
        """Does this member's part in the iteration at hand. RuntimeError behind loss.backward()."""
        share = loader.share()
        if share is not None:
            loader.log_sums(self._part(share, arguments, options))

    def _part(self, share: tuple[int, int], arguments: Any, options: Any) -> Sums:
        # What the step draws afterwards does not depend on it.
        with torch.no_grad(), torch.random.fork_rng(devices=cuda_devices()):
            return self._function(*share, *arguments, **options)


def collective(function: Callable[..., Sums]) -> Collective:
    """Decorates a function that does part `index` of `of` parts, and returns by name of a metric
    (elastic(metrics=...)) a sum and its count."""
    return Collective(function)
