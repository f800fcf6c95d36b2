# SPDX-License-Identifier: Apache-2.0
"""What a program calls: the loader of its loop, and at its end the model."""
from __future__ import annotations

from typing import Any, Sequence

import torch
import torch.utils.data

import starling.embed
from starling.embed._library import BAD_INPUT, LoopError
from starling.torch._diloco import DiLoCo
from starling.torch._loop import Loader
from starling.torch._outer_loop import OuterLoader
from starling.torch._shard_group import ShardGroup
from starling.torch._sharded import ShardedLoader


def _as_list(one: Any) -> list[Any]:
    if one is None:
        return []
    return list(one) if isinstance(one, (list, tuple)) else [one]


_trained: list[tuple[torch.nn.Module, Loader]] = []


def elastic(loader: "torch.utils.data.DataLoader[Any]", model: torch.nn.Module, optimizer: Any,
            scheduler: Any = None, *, scaler: Any = None, metrics: Sequence[str] = (),
            accumulate: int = 1, diloco: DiLoCo | None = None, group: ShardGroup | None = None) -> Loader:
    """The loader of a loop that any number of workers run together.

    `loader`'s batch_size is that of all members together. `optimizer`, `scheduler` and `scaler` (a
    torch.amp.GradScaler) may be lists. What they and the model hold is the state that joiners are given.
    `metrics` are the names that loader.log() takes beside loss, 7 at most. With `accumulate` a step is so
    many batches: the loop calls backward for each, and optimizer.step() after so many. With `diloco` each
    member trains by itself, and the models are brought together every so many steps. `group` is what
    starling.shard_group() has returned: the model is cut among its processes by fully_shard. ValueError
    says what of it cannot be elastic.
    """
    if accumulate < 1:
        raise ValueError(f"accumulate must be at least 1, not {accumulate}")
    parts = (loader, model, _as_list(optimizer), _as_list(scheduler), _as_list(scaler), metrics, accumulate)
    made = _sharded(group, diloco, parts) if group is not None else _whole(diloco, parts)
    _trained.append((model, made))
    return made


def _whole(diloco: DiLoCo | None, parts: tuple[Any, ...]) -> Loader:
    if not starling.embed._opened:
        raise LoopError(BAD_INPUT, "no job has started this program: run it by spec.workload.pytorch")
    library = starling.embed._opened.pop()
    return Loader(library, *parts) if diloco is None else OuterLoader(library, *parts, diloco=diloco)


def _sharded(group: ShardGroup, diloco: DiLoCo | None, parts: tuple[Any, ...]) -> Loader:
    if diloco is not None:
        raise ValueError("elastic() takes diloco or group, not both")
    return ShardedLoader(group, *parts)


def save(model: torch.nn.Module) -> None:
    """Says behind the loop that `model`, as it is when the program ends, is the job's model: a safetensors
    file that STARLING_MODEL names, with its digest in status.result.model. It is written when the program
    ends, for the job has ended then, and its pods with it: nothing behind this call is cut off.

    ValueError: starling.elastic() was not given this model. RuntimeError: its loop is not over."""
    for known, loader in _trained:
        if known is model:
            if not loader.over:
                raise RuntimeError("save() comes after the loop over loader.epochs(n)")
            return
    raise ValueError("save() takes the model that starling.elastic() was given")
