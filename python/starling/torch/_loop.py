# SPDX-License-Identifier: Apache-2.0
"""The loop: which step comes next, what counts, and what is undone where it does not."""
from __future__ import annotations

import atexit
import json
import os
import sys
import types
from typing import Any, Iterator, Mapping, Sequence

import torch
import torch.utils.data

import starling.embed
from starling.embed._library import Library
from starling.torch import _reproducible
from starling.torch._batches import Batches, Piece, split
from starling.torch._device import Copies, devices_of
from starling.torch._gradients import Gradients
from starling.torch._state import Segment, State


class Loader:
    """The program's loader, its batches cut for whoever is there. Made by `elastic`."""

    def __init__(self, library: Library, loader: "torch.utils.data.DataLoader[Any]",
                 model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer],
                 schedulers: Sequence[Any], scalers: Sequence[Any], metrics: Sequence[str],
                 accumulate: int) -> None:
        spec = json.loads(library.spec())
        self._library = library
        self._run: starling.embed.Run | None = None  # from epochs() on
        self.dataset = loader.dataset
        self._parts = accumulate
        given = spec.get("dataset", {}).get("globalBatchSize")
        # Samples of a step, of all members together.
        self.batch_size: int = given or (loader.batch_size or 1) * accumulate
        self._seed: int = spec.get("seed", 1)
        self._reproducible = bool(spec.get("reproducible"))
        self._batches = Batches(library, loader, self._step_size(), self._cut, self._seed,
                                self._reproducible)
        self._state = self._make_state(model, optimizers, schedulers, scalers)
        if not self._state.modules.trained:
            raise ValueError("no parameter of the model has requires_grad: there is nothing to train")
        bucket = spec.get("exchange", {}).get("allReduce", {}).get("bucketBytes", 1 << 20)
        segments = self._plan_exchange(bucket, zeros=any(one.is_enabled() for one in scalers))
        self._copies = Copies(segments)
        self._metrics = {name: number for number, name in enumerate(("loss", *metrics))}
        self._declare(metrics)
        self._optimizers = optimizers
        self._stepped = [False for _ in optimizers]
        for number, optimizer in enumerate(optimizers):
            self._guard(number, optimizer)
        for scaler in scalers:
            self._watch(scaler)
        _refuse_other_scalers(scalers)
        self._step: starling.embed.Step | None = None  # at hand; none before the first, after the last
        self._part = 0                                 # this member's samples in the batch at hand
        self._ended = False                            # the epoch's last step counts
        self.over = False                              # training is
        atexit.register(self._at_exit)

    def _step_size(self) -> int:
        """Samples of what the members make together, and which counts as one."""
        return self.batch_size

    def _cut(self, step: int, rank: int, members: int) -> list[Piece]:
        """A member without samples has one batch all the same, of none."""
        portions = self._library.portions(step, rank, members) or [[]]
        return [Piece(step, part, some)
                for ids in portions for part, some in enumerate(split(ids, self._parts))]

    def _plan_exchange(self, bucket: int, zeros: bool) -> list[Segment]:
        """Tells the library what is exchanged; returns the state that members hold alike."""
        modules = self._state.modules
        self._gradients = self._make_gradients(modules.trained, modules.buffers, bucket, zeros)
        return self._state.segments

    def _make_state(self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer],
                    schedulers: Sequence[Any], scalers: Sequence[Any]) -> State:
        return State(model, optimizers, schedulers, scalers)

    def _make_gradients(self, parameters: Sequence[tuple[str, torch.nn.Parameter]],
                        buffers: Sequence[tuple[str, torch.Tensor]], bucket: int,
                        zeros: bool) -> Gradients:
        return Gradients(self._library, parameters, buffers, bucket, zeros=zeros)

    def _weight_of(self, step: starling.embed.Step, part: int) -> float:
        """What the member's gradients count for. All members' weights add up to one, so that the sum is
        the mean as it comes, mostly; the library divides what it is not quite."""
        return float(part) if self._reproducible else part / step.batch

    def _open(self) -> None:
        """The library has started."""
        self._gradients.open()

    def _declare(self, metrics: Sequence[str]) -> None:
        self._library.set_samples(self._batches.samples, self._step_size(), self._data_name())
        for name in metrics:
            self._library.add_metric(name)
        for one, memory, copied in self._copies.given:
            self._library.add_state(one.name, one.dtype, tuple(memory.shape), memory.data_ptr(),
                                    one.in_model, copied)

    def _data_name(self) -> str:
        """Members with another one are not let in."""
        return f"{type(self.dataset).__name__}:{self._batches.samples}"

    def _guard(self, number: int, optimizer: torch.optim.Optimizer) -> None:
        """A step that does not count changes nothing, whatever the optimizer does without gradients."""
        inner = optimizer.step

        def step(this: Any, *arguments: Any, **options: Any) -> Any:
            self._stepped[number] = True
            if self.committed:
                return inner(*arguments, **options)
            # Schedulers ask whether the optimizer has stepped: by the one before PyTorch 2.4, else by
            # the other.
            this._step_count = getattr(this, "_step_count", 0) + 1
            this._opt_called = True
            return None

        for mark in ("_with_counter", "_wrapped_by_lr_sched"):
            if hasattr(inner, mark):
                setattr(step, mark, True)
        optimizer.step = types.MethodType(step, optimizer)

    def _watch(self, scaler: Any) -> None:
        """A scaler that finds an infinity in the sum passes over the optimizer's step, at all members: they
        have the same sum and the same scale."""
        inner = scaler.step

        def step(optimizer: Any, *arguments: Any, **options: Any) -> Any:
            for number, known in enumerate(self._optimizers):
                self._stepped[number] = self._stepped[number] or known is optimizer
            return inner(optimizer, *arguments, **options)

        scaler.step = step

    def __len__(self) -> int:
        """Batches in an epoch: as many as steps, but for elastic(..., accumulate=n)."""
        return self._batches.steps_per_epoch * self._parts

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs from the one that training is in (0 is the first) to `count`, unless the job's
        file says otherwise (spec.stop). Waits until this process is a member."""
        if self._run is not None:
            raise RuntimeError("loader.epochs() is for one loop over all epochs; it was called before")
        if self._reproducible:
            _reproducible.check()
            devices = devices_of(parameter for _, parameter in self._state.modules.trained)
            self._library.set_identity(_reproducible.identity(devices))
        self._library.set_end(count, 0)
        self._library.start()
        self._run = starling.embed.Run(self._library, {}, {}, list(self._metrics)[1:],
                                       self._copies.refresh)
        self._open()
        self._advance()
        while self._step is not None:
            epoch = self._step.epoch
            self._ended = False
            yield epoch - 1
            if self._step is None:
                break
            if self._ended:
                self._advance()
            elif self._step.epoch != epoch:
                self._restore()  # others are further: what was done behind the loop is not theirs
            else:
                raise RuntimeError(f"step {self._step.number} is not the last of epoch {epoch - 1}, but "
                                   "the loop over its batches has ended; end training with "
                                   "loader.epochs(n) or spec.stop")

    def __iter__(self) -> Iterator[Any]:
        """What is left of the epoch: for each step the batch of this member's share, or in a reproducible
        job one batch for each of its groups."""
        if self._step is None:
            raise RuntimeError("iterate over the loader within: for epoch in loader.epochs(n)")
        epoch = self._step.epoch
        while self._step is not None and self._step.epoch == epoch and not self._ended:
            step = self._step
            self._gradients.begin(self._parts)
            self._stepped = [False for _ in self._stepped]
            for part, ids in enumerate(split(step.ids, self._parts)):
                batch = self._batches.take(step, Piece(step.number, part, ids))
                self._part = len(ids)
                self._gradients.begin_part(self._weight_of(step, self._part))
                if self._reproducible:  # whatever was drawn while the batch was read
                    _reproducible.sow(self._seed, step.number, step.position, part)
                yield batch
                self._check_backward(step.number)
            self._check_step(step.number)
            if self.committed and step.step_of_epoch + 1 == step.steps_per_epoch:
                # No boundary here: the state after the epoch holds what the code behind it does.
                self._gradients.end()
                self._ended = True
            else:
                self._advance()

    def _check_backward(self, number: int) -> None:
        if not self._gradients.done:
            raise RuntimeError(f"step {number}: loss.backward() was not called, or none of the model's "
                               "parameters had a gradient; the other members wait for theirs")

    def _check_step(self, number: int) -> None:
        if self.committed and not all(self._stepped):
            raise RuntimeError(f"step {number}: optimizer.step() was not called; the others have taken it")

    def _restore(self) -> None:
        self._state.restore()

    def _advance(self) -> None:
        """A boundary: the library may read the state, write it, and let others in."""
        self._gradients.end()
        if self._step is not None and not self.committed:
            self._state.restore()
        self._state.modules.check_devices()
        self._state.gather()
        assert self._run is not None
        self._step = self._run.next()
        if self._run.restored if self._step is None else self._step.restored:
            self._copies.spread()
            self._state.adopt()
        if self._step is None:
            self.over = True
            self._gradients.close()
            return
        self._state.keep()
        # Dropout and the like depend on the step and on whose share it is, not on who died before.
        _reproducible.sow(self._seed, self._step.number, self._step.position)

    @property
    def committed(self) -> bool:
        """Whether the step at hand counts: true once loss.backward() has returned, unless a peer was
        lost in it. For whatever leaves the loop: lists of losses, files, moving averages."""
        return bool(self._gradients.committed)

    @property
    def step(self) -> int:
        """The number of the step at hand, from 1."""
        return int(self._step.number) if self._step is not None else 0

    @property
    def ids(self) -> tuple[int, ...]:
        """The numbers of this member's samples in the step at hand; perhaps none."""
        return tuple(self._step.ids) if self._step is not None else ()

    @property
    def rank(self) -> int:
        """This member's number among those of the step at hand, from 0."""
        return int(self._step.rank) if self._step is not None else 0

    def log(self, **values: Any) -> None:
        """Means over this member's samples, such as loss=loss: they travel with the gradients when
        called before loss.backward(), and with the next step's after it."""
        for name, value in values.items():
            self._library.log(self._number(name), as_number(value))

    def _number(self, name: str) -> int:
        if name not in self._metrics:
            raise ValueError(f"{name} is no metric of this loop ({', '.join(self._metrics)}); name it "
                             f"in elastic(..., metrics=[\"{name}\"])")
        return self._metrics[name]

    def share(self) -> tuple[int, int] | None:
        """Which part, of how many, of work that all share in the iteration at hand is to be done in it:
        the member's, or in a reproducible job the group's. None where others do it all."""
        if self._step is None:
            return None
        if not self._reproducible:
            return self._step.rank, self._step.members
        if not self._step.ids:
            return None
        groups = self._library.portions(self._step.number, 0, 1)
        return groups.index(list(self._step.ids)), len(groups)

    def log_sums(self, sums: Mapping[str, tuple[float, float]]) -> None:
        """For metrics over other data than the step's: what this iteration adds to each sum, and to what
        it is divided by. Before loss.backward(); see starling.collective."""
        if self._gradients.done:
            raise RuntimeError(f"step {self.step}: what all members sum up is for before loss.backward(): "
                               "the step's sum has been made")
        for name, (total, count) in sums.items():
            self._library.log_sum(self._number(name), float(total), float(count))

    def mean(self, name: str) -> float:
        """A metric's mean over all members in the step at hand, once it counts (loader.committed)."""
        if not self.committed:
            raise RuntimeError(f"step {self.step} does not count (yet): ask for means where "
                               "loader.committed holds")
        return self._library.mean(self._number(name))

    def weight(self, weight: float) -> None:
        """What this member's mean loss counts for, instead of the number of samples: tokens, say. To be
        called before loss.backward()."""
        self._gradients.weigh(weight if self._part > 0 else 0.0)

    def close(self) -> None:
        """Writes the job's result, and waits until it is known; the end of the program does so too."""
        if not self.over or self._run is None:
            raise RuntimeError("the result is there after the loop over loader.epochs(n)")
        self._run.close()

    def _at_exit(self) -> None:
        if self._run is None:
            sys.stdout.flush()
            print("starling: the program has ended without a loop over loader.epochs(n)",
                  file=sys.stderr, flush=True)
            os._exit(1)


def as_number(value: Any) -> float:
    """Of a loss, which may be part of a graph: newer PyTorch warns of what takes it out unasked."""
    return float(value.detach() if isinstance(value, torch.Tensor) else value)


def _refuse_other_scalers(known: Sequence[Any]) -> None:
    """One that is not part of the state would have another scale at whoever joins."""
    kinds = {type(one) for one in known}
    kinds |= {home.GradScaler for home in (torch.cuda.amp, getattr(torch, "amp", torch.cuda.amp))
              if hasattr(home, "GradScaler")}
    for kind in kinds:
        inner = kind.scale

        def scale(this: Any, outputs: Any, inner: Any = inner) -> Any:
            if this.is_enabled() and all(this is not one for one in known):
                raise RuntimeError("a GradScaler is part of what all members hold alike: give it to "
                                   "elastic(..., scaler=scaler)")
            return inner(this, outputs)

        kind.scale = scale
