# SPDX-License-Identifier: Apache-2.0
"""Unchanged programs for DistributedDataParallel, run by the elastic loop.

Each member runs the program as the only one of a world of one: its batch_size is that of all members
together, and what it says to torch.distributed is true of one process. What the names that such a
program uses stand for, while it runs:

    DistributedDataParallel   the module itself: gradients are summed by elastic()
    DistributedSampler        a sampler that shuffles, or not; shares are the loop's business
    DataLoader                itself; the one over a DistributedSampler yields elastic()'s batches
    range                     itself; the one whose loop begins when model, optimizer and loader are there
                              yields the epochs that are still to be trained
    torch.distributed         RANK is the pod's index, for whoever prints and saves; there is no other
                              process, so that barrier and broadcast have nothing to do outside the loop

Everything else of torch.distributed is refused by name. To let a program use more: a function of
_Process, or an option of _Parallel.
"""
from __future__ import annotations

import builtins
import inspect
import os
import runpy
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed
import torch.utils.data
import torch.utils.data.distributed

from starling.torch import _elastic, _loop

_REMEDY = "write the three lines of docs/how-to/pytorch.md into the program instead"


def _refuse(what: str, remedy: str = _REMEDY) -> None:
    raise RuntimeError(f"{what}: --wrap does not know it; {remedy}")


def _only_device(module: torch.nn.Module, device_ids: Any) -> torch.device | None:
    """To which inputs are moved, as DistributedDataParallel does with device_ids."""
    if not device_ids:
        return None
    device = torch.device(device_ids[0])
    if len(device_ids) > 1 or any(one.device != device for one in module.parameters()):
        _refuse(f"DistributedDataParallel(..., device_ids={device_ids})",
                "give one device, on which the whole module lies, or leave it out")
    return device


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _moved(one, device) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_moved(one, device) for one in value)
    return value


class _Parallel(torch.nn.Module):
    """In DistributedDataParallel's place, with its names: parameters are those of `module.`."""

    # What only says how gradients are summed.
    _HOW = ("output_device", "dim", "broadcast_buffers", "bucket_cap_mb", "find_unused_parameters",
            "gradient_as_bucket_view", "static_graph", "check_reduction")
    made: list["_Parallel"] = []

    def __init__(self, module: torch.nn.Module, device_ids: Any = None, **options: Any) -> None:
        super().__init__()
        for name, value in options.items():
            if name not in self._HOW and value is not None:
                _refuse(f"DistributedDataParallel(..., {name}=...)")
        self._device = _only_device(module, device_ids)
        self.module = module
        _Parallel.made.append(self)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        if self._device is not None:
            inputs, options = _moved(inputs, self._device), _moved(options, self._device)
        return self.module(*inputs, **options)

    def __getattr__(self, name: str) -> Any:
        if name in ("no_sync", "join", "register_comm_hook"):
            _refuse(f"DistributedDataParallel.{name}")
        return super().__getattr__(name)


class _Shuffled(torch.utils.data.RandomSampler):
    def set_epoch(self, epoch: int) -> None:
        """The loop's order is another one in each epoch by itself."""


class _InOrder(torch.utils.data.SequentialSampler):
    def set_epoch(self, epoch: int) -> None:
        pass


def _sampler(dataset: Any, num_replicas: Any = None, rank: Any = None, shuffle: bool = True,
             seed: int = 0, drop_last: bool = False) -> Any:
    """In DistributedSampler's place. The job's seed is the order's, and no sample is dropped."""
    return _Shuffled(dataset) if shuffle else _InOrder(dataset)


class _Loader(torch.utils.data.DataLoader):
    """A DataLoader; the one over _sampler's is the elastic loop's once that has begun."""

    made: list["_Loader"] = []

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.elastic: _loop.Loader | None = None
        if isinstance(self.sampler, (_Shuffled, _InOrder)):
            _Loader.made.append(self)

    def __iter__(self) -> Iterator[Any]:
        if self in _Loader.made and self.elastic is None:
            _refuse("a loop over the loader outside of: for epoch in range(...)")
        return super().__iter__() if self.elastic is None else iter(self.elastic)

    def __len__(self) -> int:
        return super().__len__() if self.elastic is None else len(self.elastic)


class _Made:
    """What the program makes of some kinds, in the order in which it does."""

    def __init__(self, kinds: Sequence[type]) -> None:
        self._found: list[Any] = []
        for kind in kinds:
            self._note(kind)

    def _note(self, kind: Any) -> None:
        inner = kind.__init__

        def init(this: Any, *arguments: Any, **options: Any) -> None:
            if all(this is not one() for one in self._found):
                self._found.append(weakref.ref(this))
            inner(this, *arguments, **options)

        setattr(init, "__signature__", inspect.signature(inner))
        kind.__init__ = init

    def all(self) -> list[Any]:
        return [one() for one in self._found if one() is not None]


class _Process:
    """What stands in torch.distributed: this process is the only one of its world."""

    def __init__(self, training: "_Training") -> None:
        self._training = training
        self._begun = False

    def init_process_group(self, *_: Any, **__: Any) -> None:
        self._begun = True

    def destroy_process_group(self, *_: Any) -> None:
        self._begun = False

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self._begun

    def get_rank(self, *_: Any) -> int:
        return int(os.environ["RANK"])

    def get_world_size(self, *_: Any) -> int:
        return 1

    def get_backend(self, *_: Any) -> str:
        return "starling"

    def barrier(self, *_: Any, **__: Any) -> None:
        self._outside("barrier")

    def broadcast(self, tensor: Any, *_: Any, **__: Any) -> None:
        """What members begin with is the first one's in any case."""
        self._outside("broadcast")

    def broadcast_object_list(self, objects: Any, *_: Any, **__: Any) -> None:
        self._outside("broadcast_object_list")

    def _outside(self, name: str) -> None:
        if self._training.running:
            _refuse(f"torch.distributed.{name} in the loop over epochs")


class _Training:
    """The loop over epochs, from the range that it is written over."""

    def __init__(self) -> None:
        home = torch.optim.lr_scheduler
        self._optimizers = _Made([torch.optim.Optimizer])
        self._schedulers = _Made([getattr(home, "LRScheduler", home._LRScheduler)])
        self._scalers = _Made([torch.cuda.amp.GradScaler])
        self._done = False
        self.running = False

    def range(self, *bounds: int) -> Any:
        """`range` of the program's own text."""
        plain = builtins.range(*bounds)
        there = _Parallel.made and _Loader.made and self._optimizers.all()
        return self._epochs(plain) if there and not self._done else plain

    def _epochs(self, plain: Any) -> Iterator[int]:
        self._done = True
        if plain.step != 1 or len(plain) == 0:
            _refuse(f"a loop over epochs of {plain}")
        loader = self._elastic()
        self.running = True
        for epoch in loader.epochs(plain.stop):
            if epoch < plain.start:
                raise RuntimeError(f"the loop over epochs begins with {plain.start}, but training is in "
                                   f"epoch {epoch}: what the program has loaded by itself, the other "
                                   "members have not; leave that to spec.checkpoint")
            yield epoch
        self.running = False

    def _elastic(self) -> _loop.Loader:
        models, loaders, optimizers = _Parallel.made, _Loader.made, self._optimizers.all()
        for what, found in (("DistributedDataParallel", models), ("DistributedSampler", loaders)):
            if len(found) > 1:
                _refuse(f"a second {what} ({len(found)} in all)")
        scalers = self._scalers.all()
        elastic = _elastic.elastic(loaders[0], models[0].module, optimizers, self._schedulers.all(),
                                   scaler=scalers)
        loaders[0].elastic = elastic
        if not scalers:
            self._log_losses(elastic)
        return elastic

    def _log_losses(self, loader: _loop.Loader) -> None:
        inner = torch.Tensor.backward

        def backward(this: Any, *arguments: Any, **options: Any) -> None:
            if self.running and this.numel() == 1:
                loader.log(loss=this.detach())
            inner(this, *arguments, **options)

        torch.Tensor.backward = backward


def _refusal(name: str) -> Callable[..., None]:
    def refuse(*_: Any, **__: Any) -> None:
        _refuse(name)
    return refuse


def _index() -> str:
    """Of the pod, as its name ends with it."""
    words = sys.orig_argv
    pod = words[words.index("--pod-name") + 1] if "--pod-name" in words else ""
    index = pod.rpartition("-")[2]
    return index if index.isdigit() else "0"


def _replace(training: _Training) -> None:
    os.environ.update(RANK=_index(), LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    process = _Process(training)
    for name, function in list(vars(torch.distributed).items()):
        if name.startswith("_") or type(function) is not types.FunctionType:
            continue
        known = getattr(process, name, None)
        setattr(torch.distributed, name, known or _refusal(f"torch.distributed.{name}"))
    torch.nn.parallel.DistributedDataParallel = _Parallel
    torch.nn.parallel.distributed.DistributedDataParallel = _Parallel
    for home in (torch.utils.data, torch.utils.data.distributed):
        home.DistributedSampler = _sampler
    # Not in its own file, whose class calls itself by that name.
    torch.utils.data.DataLoader = _Loader
    torch.multiprocessing.spawn = _refusal("torch.multiprocessing.spawn")


def run(command: Sequence[str]) -> None:
    """Runs the program, whose name and arguments these are, in this member."""
    training = _Training()
    _replace(training)
    sys.argv = list(command)
    sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
    runpy.run_path(command[0], init_globals={"range": training.range}, run_name="__main__")
