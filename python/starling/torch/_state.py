# SPDX-License-Identifier: Apache-2.0
"""The state that all members hold alike: what a joiner is given, and a checkpoint keeps.

The library reads and writes memory whose place and layout are told once. Parameters and buffers lie
in it where they are, but for those on a device, of which it has copies (_device.py). An optimizer makes
its tensors when it first needs them, so their layout is found out on a copy of it, and its own are put
into the memory when they are there. Numbers and texts (hyperparameters, schedulers, a GradScaler's
scale) travel as one JSON text. Random numbers are no state: the loop seeds them anew for each step.
"""
from __future__ import annotations

import copy
import json
import struct
from collections import defaultdict
from typing import Any, NamedTuple, Sequence

import torch

MOST_TEXT = 1 << 18  # bytes of the JSON text
_DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16",
           torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32", torch.int16: "I16",
           torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}


class Segment(NamedTuple):
    """A tensor of the state, in memory that stays where it is."""

    name: str
    tensor: torch.Tensor
    in_model: bool  # it stands in the file of the job's result

    @property
    def dtype(self) -> str:
        """As safetensors spells it."""
        return _DTYPES[self.tensor.dtype]


def _check(name: str, tensor: torch.Tensor) -> None:
    wrong = ""
    if tensor.device.type == "meta":
        wrong = "lies on meta and has no values; write model.to_empty(device=...) and give it some"
    elif tensor.dtype not in _DTYPES:
        wrong = f"is of type {tensor.dtype}, which safetensors files do not have"
    elif tensor.is_sparse or not tensor.is_contiguous():
        wrong = "is not contiguous; write model.to(memory_format=torch.contiguous_format)"
    if wrong:
        raise ValueError(f"{name} {wrong}")


class Modules:
    """The parameters and buffers of a model, where they are."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._parameters = list(model.named_parameters())
        self._owners = _owners(model)
        kept = model.state_dict().keys()
        self.buffers = [(name, buffer) for name, buffer in model.named_buffers()]
        self.segments = []
        for name, tensor in [*self._parameters, *self.buffers]:
            _check(name, tensor)
            self.segments.append(Segment(name, tensor.detach(), name in kept))
        self._before = [buffer.clone() for _, buffer in self.buffers]

    @property
    def trained(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Those that have gradients."""
        return [(name, one) for name, one in self._parameters if one.requires_grad]

    def check_devices(self) -> None:
        """RuntimeError: a parameter has been moved to another device since the state was made."""
        for (name, _), (module, key), segment in zip(self._parameters, self._owners, self.segments):
            present = module._parameters.get(key)
            if present is not None and present.device != segment.tensor.device:
                raise RuntimeError(f"{name} was moved from {segment.tensor.device} to {present.device} behind "
                                   "starling.elastic(): move the model before, and make the optimizer then")

    def gather(self) -> None:
        """Parameters that were given other memory are put back where the library looks for them."""
        for (_, parameter), segment in zip(self._parameters, self.segments):
            if parameter.data_ptr() == segment.tensor.data_ptr():
                continue
            segment.tensor.copy_(parameter.data)
            if parameter.device == segment.tensor.device:  # else the model was moved behind the loop
                parameter.data = segment.tensor

    def adopt(self) -> None:
        """What the library has put into the memory is the model: it lies there."""

    def keep(self) -> None:
        """Notes what the forward pass changes, for restore."""
        for before, (_, buffer) in zip(self._before, self.buffers):
            before.copy_(buffer)

    def restore(self) -> None:
        for before, (_, buffer) in zip(self._before, self.buffers):
            buffer.copy_(before)


def _owners(model: torch.nn.Module) -> list[tuple[torch.nn.Module, str]]:
    """Of each parameter, in the order of named_parameters: whose it is, and under which name."""
    found: dict[int, tuple[torch.nn.Module, str]] = {}
    for module in model.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                found.setdefault(id(parameter), (module, key))
    return [found[id(parameter)] for parameter in model.parameters()]


class _Slot(NamedTuple):
    parameter: torch.nn.Parameter
    key: str
    tensor: torch.Tensor
    number: type | None  # of what is a plain number at the optimizer


class OptimizerState:
    """An optimizer's tensors: which there can be is known from the start, which there are is not."""

    def __init__(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._slots: list[_Slot] = []
        self.segments: list[Segment] = []
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        for index, (parameter, scratch) in enumerate(zip(parameters, _after_a_step(optimizer))):
            for key, value in {**scratch, **optimizer.state.get(parameter, {})}.items():
                if value is None:
                    continue
                self._add(f"{name}/{index}/{key}", parameter, key, value)
        self._known = {(slot.parameter, slot.key) for slot in self._slots}
        self._present = torch.zeros(max(len(self._slots), 1), dtype=torch.uint8)
        self.segments.append(Segment(f"{name}/present", self._present, False))

    def _add(self, name: str, parameter: torch.nn.Parameter, key: str, value: Any) -> None:
        number = None
        if isinstance(value, torch.Tensor):
            tensor = torch.zeros_like(value, memory_format=torch.contiguous_format)
        elif isinstance(value, (bool, int, float)):
            number = type(value)
            tensor = torch.zeros((), dtype=torch.float64 if number is float else torch.int64)
        else:
            kind = type(self._optimizer).__name__
            raise ValueError(f"{kind} keeps a {type(value).__name__} ({key}) for each parameter; only "
                             "optimizers whose state is tensors and numbers can be elastic")
        _check(name, tensor)
        self._slots.append(_Slot(parameter, key, tensor, number))
        self.segments.append(Segment(name, tensor, False))

    def gather(self) -> None:
        """What the optimizer has by now goes into the memory that the library knows, and stays there."""
        self._check_known()
        state = self._optimizer.state
        for index, (parameter, key, tensor, number) in enumerate(self._slots):
            value = state.get(parameter, {}).get(key)
            self._present[index] = value is not None
            if value is None:
                continue
            if number is not None:
                tensor.fill_(value)
            elif value.data_ptr() != tensor.data_ptr():
                tensor.copy_(value)
                state[parameter][key] = tensor

    def _check_known(self) -> None:
        for parameter, kept in self._optimizer.state.items():
            for key, value in kept.items():
                if value is not None and (parameter, key) not in self._known:
                    raise RuntimeError(f"the optimizer has begun to keep {key}, which a trial step on a "
                                       "copy did not show; members without it could not be given it")

    def scatter(self) -> None:
        """The optimizer has what the memory holds, and nothing else."""
        for index, (parameter, key, tensor, number) in enumerate(self._slots):
            kept = self._optimizer.state[parameter]
            if self._present[index]:
                kept[key] = tensor if number is None else number(tensor.item())
            else:
                kept.pop(key, None)


def _after_a_step(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """What the optimizer keeps for each parameter once it has made a step: found on a copy of both."""
    trial = copy.copy(optimizer)
    trial.__dict__.pop("step", None)  # a scheduler's, which counts the original's steps
    trial.state = defaultdict(dict)
    trial.param_groups = []
    copies = []
    for group in optimizer.param_groups:
        twins = []
        for parameter in group["params"]:
            twin = parameter.detach().clone().requires_grad_(parameter.requires_grad)
            twin.grad = torch.zeros_like(twin) if parameter.requires_grad else None
            twins.append(twin)
            if parameter in optimizer.state:  # some have it from the start
                trial.state[twin] = copy.deepcopy(optimizer.state[parameter])
        trial.param_groups.append({**copy.deepcopy({k: v for k, v in group.items() if k != "params"}),
                                   "params": twins})
        copies += twins
    try:
        type(optimizer).step(trial)
    except TypeError as error:
        kind = type(optimizer).__name__
        raise ValueError(f"{kind}.step() needs an argument, such as a closure, which an elastic step "
                         "cannot call again") from error
    return [dict(trial.state.get(twin, {})) for twin in copies]


def _plain(value: Any) -> Any:
    """What of `value` JSON can hold; None where nothing can."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.dim() == 0 else None
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if isinstance(key, str)}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def _merged(present: Any, told: Any) -> Any:
    """`told`, where it says something, in the form of what is `present`: tuples and tensors as such."""
    if isinstance(present, torch.Tensor):
        return present.fill_(told) if present.dim() == 0 and told is not None else present
    if isinstance(present, dict) and isinstance(told, dict):
        return type(present)({**present, **{key: _merged(present[key], told[key])
                                            for key in present if key in told}})
    if isinstance(present, (list, tuple)) and isinstance(told, list):
        if len(present) == len(told):
            return type(present)(_merged(a, b) for a, b in zip(present, told))
        return type(present)(told)
    return present if told is None and present is not None and not _is_plain(present) else told


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


class Text:
    """Hyperparameters, schedulers and scalers, as one JSON text in memory of a fixed size."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], schedulers: Sequence[Any],
                 scalers: Sequence[Any]) -> None:
        self._optimizers = optimizers
        self._schedulers = schedulers
        self._scalers = scalers
        self._memory = torch.zeros(MOST_TEXT, dtype=torch.uint8)
        self.bytes = 0  # of what was gathered last, with its size
        self.segments = [Segment("settings", self._memory, False)]

    def gather(self) -> None:
        groups = [[{key: _plain(value) for key, value in group.items() if key != "params"}
                   for group in one.param_groups] for one in self._optimizers]
        told = {"groups": groups, "schedulers": [_plain(one.state_dict()) for one in self._schedulers],
                "scalers": [_plain(one.state_dict()) for one in self._scalers]}
        text = json.dumps(told, separators=(",", ":")).encode()
        if len(text) + 8 > MOST_TEXT:
            raise RuntimeError(f"the settings of optimizer and scheduler take {len(text)} bytes as JSON; "
                               f"at most {MOST_TEXT - 8} travel")
        whole = struct.pack("<q", len(text)) + text
        self.bytes = len(whole)
        self._memory[:len(whole)] = torch.frombuffer(bytearray(whole), dtype=torch.uint8)

    def scatter(self) -> None:
        """ValueError: what lies in the memory was not written by gather."""
        whole = self._memory.numpy().tobytes()
        size, = struct.unpack_from("<q", whole)
        try:
            if not 0 < size <= MOST_TEXT - 8:
                raise ValueError(f"a text of {size} bytes")
            self._take(json.loads(whole[8:8 + size]))
        except Exception as error:  # whatever a scheduler makes of numbers that are none
            raise ValueError("settings: what the state says of optimizer, scheduler and scaler is not what "
                             f"this program writes ({type(error).__name__}: {error}); are all members and "
                             "the checkpoint of the same program?") from error

    def _take(self, told: Any) -> None:
        for optimizer, groups in zip(self._optimizers, told["groups"]):
            for group, values in zip(optimizer.param_groups, groups):
                for key, value in values.items():
                    if key in group:
                        group[key] = _merged(group[key], value)
        for scheduler, values in zip(self._schedulers, told["schedulers"]):
            scheduler.load_state_dict(_merged(scheduler.state_dict(), values))
        for scaler, values in zip(self._scalers, told["scalers"]):
            if values:  # of one that is not enabled: none
                scaler.load_state_dict(values)


class State:
    """All of it. Between `gather` and `keep` the library reads and writes it."""

    def __init__(self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer],
                 schedulers: Sequence[Any], scalers: Sequence[Any] = ()) -> None:
        self._make_parts(model, optimizers, schedulers, scalers)
        self.segments: list[Segment] = [*self.modules.segments,
                                        *(one for part in self._kept for one in part.segments),
                                        *self._text.segments]
        self.gather()

    def _make_parts(self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer],
                    schedulers: Sequence[Any], scalers: Sequence[Any]) -> None:
        self.modules: Modules = Modules(model)
        self._kept: Sequence[OptimizerState] = [OptimizerState(name, one)
                                                for name, one in self._named(optimizers)]
        self._text: Text = Text(optimizers, schedulers, scalers)

    @staticmethod
    def _named(optimizers: Sequence[torch.optim.Optimizer]) -> list[tuple[str, torch.optim.Optimizer]]:
        return [("optimizer" if len(optimizers) == 1 else f"optimizer{number}", one)
                for number, one in enumerate(optimizers)]

    @property
    def text_bytes(self) -> int:
        """Of the settings, as they were gathered last."""
        return self._text.bytes

    def gather(self) -> None:
        """Before the library looks: what the program has made of the state lies where it looks."""
        with torch.no_grad():
            self.modules.gather()
            for part in self._kept:
                part.gather()
            self._text.gather()

    def keep(self) -> None:
        """After it: from here on the forward pass changes buffers."""
        self.modules.keep()

    def adopt(self) -> None:
        """The library has put another state into the memory."""
        with torch.no_grad():
            self.modules.adopt()
        for part in self._kept:
            part.scatter()
        self._text.scatter()

    def restore(self) -> None:
        """What the program has changed since the last boundary is undone, all but the parameters: no
        optimizer has stepped."""
        self.modules.restore()
        self.adopt()
