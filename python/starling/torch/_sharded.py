# SPDX-License-Identifier: Apache-2.0
"""A loop whose model FSDP2 has cut among the processes of a member (_shard_group.py): what state and gradients
are then, and how much each process's samples count.

A process has rows of each parameter, of its gradient and of what the optimizer keeps for it. The library's
memory holds them whole; `_Rows` moves a process's own between there and here. FSDP2 takes the mean of the
processes' gradients, whatever they have computed: where one has more samples than another its gradients are
scaled before that, at the model's output.
"""
from __future__ import annotations

from typing import Any, Iterator, Sequence, cast

import torch

from starling.embed import Step
from starling.embed._library import Library
from starling.torch._gradients import Gradients
from starling.torch._loop import Loader
from starling.torch._shard_group import ShardGroup
from starling.torch._state import Modules, OptimizerState, Segment, State, Text, _check, _Slot


def _is_cut(tensor: Any) -> bool:
    return hasattr(tensor, "to_local")


class _Rows:
    """This process's rows of a tensor that the group's memory holds whole."""

    def __init__(self, name: str, cut: Any, whole: torch.Tensor, group: ShardGroup) -> None:
        local = cut.to_local()
        every = -(-cut.shape[0] // group.size)  # as torch.chunk has it
        begin = min(every * group.rank, cut.shape[0])
        if [one.is_shard(0) for one in cut.placements] != [True] or cut.device_mesh.size() != group.size or (
                local.shape[0] != min(every, cut.shape[0] - begin)):
            raise ValueError(f"{name} is not cut along its first dimension among the {group.size} processes of the "
                             "group; call fully_shard(model) with its defaults")
        self._mesh = cut.device_mesh
        self._placements = cut.placements
        self._whole = whole
        self.rows = whole[begin:begin + local.shape[0]]

    def put(self, cut: Any) -> None:
        self.rows.copy_(cut.to_local())

    def get(self, cut: Any) -> None:
        cut.to_local().copy_(self.rows)

    def new(self) -> Any:
        """One that holds what the memory holds."""
        from torch.distributed.tensor import DTensor
        return DTensor.from_local(self.rows.clone(), self._mesh, self._placements, run_check=False,
                                  shape=self._whole.shape, stride=self._whole.stride())


class ShardedModules(Modules):
    """Parameters that are cut; buffers that nothing changes."""

    def __init__(self, model: torch.nn.Module, group: ShardGroup) -> None:
        self._first = group.rank == 0
        self._parameters = list(model.named_parameters())
        self._owners = []
        self.buffers = list(model.named_buffers())
        self.segments = []
        self._rows = []
        self._shared = []
        kept = model.state_dict().keys()
        _refuse_averages(model)
        for name, parameter in self._parameters:
            if not _is_cut(parameter):
                raise ValueError(f"{name} is not cut: call fully_shard(model) behind shard_group()")
            _check(name, parameter.to_local())
            _check_host(name, parameter.to_local())
            whole = group.memory(parameter.shape, parameter.dtype)
            self._rows.append(_Rows(name, parameter, whole, group))
            self.segments.append(Segment(name, whole, name in kept))
        for name, buffer in self.buffers:
            _check(name, buffer)
            _check_host(name, buffer)
            self._shared.append(group.memory(buffer.shape, buffer.dtype))
            self.segments.append(Segment(name, self._shared[-1], name in kept))
        self._before = [buffer.clone() for _, buffer in self.buffers]

    def gather(self) -> None:
        for (_, parameter), rows in zip(self._parameters, self._rows):
            rows.put(parameter)
        for (_, buffer), shared in zip(self.buffers, self._shared):
            if self._first:
                shared.copy_(buffer)

    def adopt(self) -> None:
        for (_, parameter), rows in zip(self._parameters, self._rows):
            rows.get(parameter)
        for (_, buffer), shared in zip(self.buffers, self._shared):
            buffer.copy_(shared)


def _check_host(name: str, tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(f"{name} lies on {tensor.device}: the processes of a group compute on the CPU so far; "
                         "leave out shard_group() and fully_shard() where a model fits one device")


def _refuse_averages(model: torch.nn.Module) -> None:
    for name, module in model.named_modules():
        if getattr(module, "running_mean", None) is not None:
            raise ValueError(f"{name} ({type(module).__name__}) keeps running averages, which the processes of a "
                             "group would have each for itself; use LayerNorm or GroupNorm, or no group")


class ShardedOptimizerState(OptimizerState):
    """Tensors of a parameter's shape are cut as it is; others every process has."""

    def __init__(self, name: str, optimizer: torch.optim.Optimizer, group: ShardGroup) -> None:
        self._group = group
        self._first = group.rank == 0
        self._rows: dict[int, _Rows] = {}  # by slot
        super().__init__(name, optimizer)
        self._present = group.memory(self._present.shape, self._present.dtype)
        self.segments[-1] = Segment(f"{name}/present", self._present, False)

    def _add(self, name: str, parameter: torch.nn.Parameter, key: str, value: Any) -> None:
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"{type(self._optimizer).__name__} keeps a number ({key}) for each parameter, which "
                             "is not supported in a group; torch.optim's own keep tensors")
        whole = self._group.memory(value.shape, value.dtype)
        if _is_cut(value):
            _check(name, value.to_local())
            self._rows[len(self._slots)] = _Rows(name, value, whole, self._group)
        else:
            _check(name, value)
        self._slots.append(_Slot(parameter, key, whole, None))
        self.segments.append(Segment(name, whole, False))

    def gather(self) -> None:
        self._check_known()
        for index, (parameter, key, whole, _) in enumerate(self._slots):
            value = self._optimizer.state.get(parameter, {}).get(key)
            if self._first:
                self._present[index] = value is not None
            if value is None:
                continue
            if index in self._rows:
                self._rows[index].put(value)
            elif self._first:
                whole.copy_(value)

    def scatter(self) -> None:
        for index, (parameter, key, whole, _) in enumerate(self._slots):
            kept = self._optimizer.state[parameter]
            if not self._present[index]:
                kept.pop(key, None)
            elif index not in self._rows:
                kept[key] = whole.clone()  # each process counts its own
            elif kept.get(key) is None:
                kept[key] = self._rows[index].new()
            else:
                self._rows[index].get(kept[key])


class ShardedText(Text):
    def __init__(self, group: ShardGroup, optimizers: Sequence[torch.optim.Optimizer],
                 schedulers: Sequence[Any]) -> None:
        super().__init__(optimizers, schedulers, [])
        self._first = group.rank == 0
        self._memory = group.memory(self._memory.shape, self._memory.dtype)
        self.segments = [Segment("settings", self._memory, False)]

    def gather(self) -> None:
        if self._first:
            super().gather()


class ShardedState(State):
    def __init__(self, group: ShardGroup, model: torch.nn.Module,
                 optimizers: Sequence[torch.optim.Optimizer], schedulers: Sequence[Any]) -> None:
        self._group = group
        super().__init__(model, optimizers, schedulers)

    def _make_parts(self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer],
                    schedulers: Sequence[Any], scalers: Sequence[Any]) -> None:
        self.modules = ShardedModules(model, self._group)
        self._kept = [ShardedOptimizerState(name, one, self._group)
                      for name, one in self._named(optimizers)]
        self._text = ShardedText(self._group, optimizers, schedulers)


class ShardedGradients(Gradients):
    """As Gradients, of this process's rows; the flat memory is the group's."""

    _lends = False  # a gradient is cut as its parameter is

    def __init__(self, group: ShardGroup, *parts: Any) -> None:
        self._group = group
        super().__init__(*parts)

    def _memory(self) -> torch.Tensor:
        flat = self._group.memory((sum(self._sizes),), torch.float32)
        self._group.library.use(flat)
        return flat

    def _view(self, name: str, parameter: Any, whole: torch.Tensor) -> torch.Tensor:
        return _Rows(name, parameter, whole, self._group).rows

    def _gradient(self, parameter: Any) -> torch.Tensor | None:
        return None if parameter.grad is None else parameter.grad.to_local()

    def _write_beside(self, had: list[bool]) -> None:
        if self._group.rank == 0:
            super()._write_beside(had)

    def _set_gradient(self, parameter: Any, mean: torch.Tensor) -> None:
        from torch.distributed.tensor import DTensor
        parameter.grad = DTensor.from_local(
            mean.to(parameter.dtype, copy=True), parameter.device_mesh, parameter.placements, run_check=False,
            shape=parameter.shape, stride=parameter.stride())


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, dict):
        for one in output.values():
            yield from _tensors(one)
    elif isinstance(output, (list, tuple)):
        for one in output:
            yield from _tensors(one)


class ShardedLoader(Loader):
    """As Loader, in each process of a group: a member's share is cut for them."""

    def __init__(self, group: ShardGroup, *parts: Any) -> None:
        self._group = group
        model, scalers, accumulate = parts[1], parts[4], parts[6]
        if accumulate != 1 or any(one.is_enabled() for one in scalers):
            raise ValueError("elastic(..., group=...) takes neither accumulate nor scaler")
        # What a loop asks of the library, and no more.
        super().__init__(cast(Library, group.library), *parts)
        if self._reproducible:
            raise ValueError("spec.reproducible: sums inside a group depend on its size; leave out one of both")
        model.register_forward_hook(self._scale_gradients)

    def _data_name(self) -> str:
        """What sums over a parameter's parts (clipping does) is rounded otherwise with another number of parts:
        members would come apart."""
        return f"{super()._data_name()}:processes={self._group.size}"

    def _make_state(self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer],
                    schedulers: Sequence[Any], scalers: Sequence[Any]) -> State:
        return ShardedState(self._group, model, optimizers, schedulers)

    def _make_gradients(self, parameters: Sequence[tuple[str, torch.nn.Parameter]],
                        buffers: Sequence[tuple[str, torch.Tensor]], bucket: int,
                        zeros: bool) -> Gradients:
        return ShardedGradients(self._group, self._library, parameters, buffers, bucket)

    def _weight_of(self, step: Step, part: int) -> float:
        whole = self._group.library.whole
        return 1.0 if step.members == 1 and whole > 0 else float(whole)

    def _scale(self) -> float:
        """What makes the mean over the processes the mean over the member's samples."""
        whole = self._group.library.whole
        return self._part * self._group.size / whole if whole > 0 else 0.0

    def _scale_gradients(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        scale = self._scale()
        if self._step is None or not torch.is_grad_enabled() or scale == 1:
            return
        for one in _tensors(output):
            if one.requires_grad:
                one.register_hook(lambda gradient: gradient * scale if scale > 0
                                  else torch.zeros_like(gradient))

    def weight(self, weight: float) -> None:
        raise RuntimeError("loader.weight() is not supported in a group: its processes count by their samples")

    def share(self) -> tuple[int, int] | None:
        raise RuntimeError("starling.collective is not supported in a group: the processes of a model that is cut "
                           "make each forward pass together")
