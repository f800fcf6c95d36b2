# SPDX-License-Identifier: Apache-2.0
"""The loop of DiLoCo (_diloco.py): the library's step is the outer one, and its batch is that of all inner
steps. A member's share of it comes in so many batches, and each counts by itself.

Where a member is lost, those who are left finish their inner steps and make the outer step of what they
have; it takes no second try of what they have computed. What the lost one had of the step's samples is
left over, and the next outer step makes up for it, in inner batches that are a little larger then. Who
has nothing to bring, as it has come meanwhile, brings nothing; all are told alike which step that is
(Step.interrupted). Where nothing could make up for it, in training's last step or after several losses
in a row, all make the step anew, from its beginning.
"""
from __future__ import annotations

import atexit
import sys
from typing import Any, Iterator, NamedTuple

from starling.embed import Step
from starling.torch import _reproducible
from starling.torch._batches import Piece, split
from starling.torch._diloco import DiLoCo, Outer
from starling.torch._loop import Loader, as_number
from starling.torch._state import Segment


def share_of(length: int, rank: int, members: int) -> range:
    """As the library cuts a batch."""
    return range(rank * length // members, (rank + 1) * length // members)


def work_of(step: int, ids: "list[int]", late: "tuple[tuple[int, int], ...]") -> list[tuple[int, int]]:
    """All samples of an outer step, each with the step that it belongs to."""
    return [*late, *((step, one) for one in ids)]


def cut_work(step: int, work: "list[tuple[int, int]]", mine: range, inner: int) -> list[Piece]:
    """A member's samples, in the batches of so many inner steps."""
    parts = split(range(mine.start, mine.stop), inner)
    return [Piece(step, part, tuple(work[at][1] for at in some if work[at][0] == step),
                  tuple(work[at] for at in some if work[at][0] != step))
            for part, some in enumerate(parts)]


class _Made(NamedTuple):
    """Inner steps that this member has made, and that are in no outer step yet."""

    step: int
    samples: range  # of its work
    logged: dict[int, float]  # means by metric
    begun_from: bytes  # digest of the state; known once the step was given back


class OuterLoader(Loader):
    """As Loader, but that what members do alone between two outer steps counts."""

    def __init__(self, *parts: Any, diloco: DiLoCo) -> None:
        self._diloco = diloco
        self._made: _Made | None = None
        self._piece: Piece | None = None
        self._sums: dict[int, list[float]] = {}  # of what is logged, and its count
        self._has_means = False
        library, scalers, accumulate = parts[0], parts[5], parts[7]
        if accumulate != 1 or any(one.is_enabled() for one in scalers):
            raise ValueError("elastic(..., diloco=...) takes neither accumulate nor scaler: inner steps are "
                             "each member's own")
        super().__init__(*parts)
        if self._reproducible:
            raise ValueError("spec.reproducible: with DiLoCo the result depends on how many members train, so "
                             "it cannot be the same for any number; leave out one of both")
        self._library = library

    # What the members make together is an outer step.

    def _step_size(self) -> int:
        return self.batch_size * self._diloco.inner_steps

    def _plan_exchange(self, bucket: int, zeros: bool) -> list[Segment]:
        self._outer = Outer(self._library, self._state, self._diloco, self._step_size(), bucket)
        return self._outer.segments

    def _open(self) -> None:
        self._outer.open()
        self._outer.take()

    def _work(self, step: int) -> list[tuple[int, int]]:
        """What is read ahead is of steps that make up for nothing, as far as anybody knows."""
        at_hand = self._step is not None and self._step.number == step
        return work_of(step, self._library.order(step, 0, 1), self._outer.left if at_hand else ())

    def _inner_steps(self, step: int) -> int:
        """As many whatever is to be made up for: schedulers count them."""
        return max(1, -(-len(self._library.order(step, 0, 1)) // self.batch_size))

    def _cut(self, step: int, rank: int, members: int) -> list[Piece]:
        work = self._work(step)
        return cut_work(step, work, share_of(len(work), rank, members), self._inner_steps(step))

    def __len__(self) -> int:
        return -(-self._batches.samples // self.batch_size)

    # The loop.

    def __iter__(self) -> Iterator[Any]:
        """What is left of the epoch: the batches of this member's inner steps."""
        if self._step is None:
            raise RuntimeError("iterate over the loader within: for epoch in loader.epochs(n)")
        epoch = self._step.epoch
        while self._step is not None and self._step.epoch == epoch and not self._ended:
            step = self._step
            finishes = self._finishes(step)
            if not finishes:
                yield from self._train(step)
            if self._make_outer(step, finishes) and step.step_of_epoch + 1 == step.steps_per_epoch:
                self._ended = True  # the state after the epoch holds what the code behind it does
            else:
                self._advance()

    def _finishes(self, step: Step) -> bool:
        """Whether an outer step that was interrupted is made of what members have of it."""
        return step.interrupted and not step.last and len(self._outer.left) <= self._outer.samples

    def _train(self, step: Step) -> Iterator[Any]:
        if self._made is not None:
            self._made = None
            self._outer.give()
        self._sums = {}
        for piece in self._cut(step.number, step.rank, step.members):
            batch = self._batches.take(step, piece)
            self._piece = piece
            self._part = piece.samples
            self._stepped = [False for _ in self._stepped]
            for _, parameter in self._state.modules.trained:
                parameter.grad = None
            _reproducible.sow(self._seed, step.number, step.position, piece.part)
            yield batch
            if self.committed and not all(self._stepped):
                raise RuntimeError(f"step {step.number}: optimizer.step() was not called in inner step "
                                   f"{piece.part}")
        self._piece = None
        self._part = 0
        self._made = _Made(step.number, share_of(len(self._work(step.number)), step.rank, step.members),
                           {name: total / count for name, (total, count) in self._sums.items() if count > 0},
                           b"")

    def _make_outer(self, step: Step, finishes: bool) -> bool:
        made = self._made
        weight = 0.0 if made is None else float(len(made.samples))
        if made is not None:
            for metric, mean in made.logged.items():
                self._library.log(metric, mean)
        if not self._outer.reduce(weight, range(0) if made is None else made.samples):
            if made is not None:
                self._made = made._replace(begun_from=self._outer.digest())
            return False
        self._outer.step(self._work(step.number), whole=not finishes)
        self._outer.give()
        self._made = None
        self._has_means = True
        return True

    def _restore(self) -> None:
        self._outer.give()

    def _advance(self) -> None:
        if self._ended:
            self._outer.take()
        self._state.modules.check_devices()
        assert self._run is not None
        self._step = self._run.next()
        self._keep_or_forget()
        if self._step is None:
            self.over = True
            atexit.register(self._outer.take)  # what the program makes of its model behind the loop
            self._tell_what_is_left()

    def _keep_or_forget(self) -> None:
        """What this member has made is of the step at hand, or of a state that is past."""
        step, made = self._step, self._made
        if step is not None and made is not None and made.step == step.number and (
                not step.restored or made.begun_from == self._outer.digest()):
            return
        if made is not None or step is None or step.restored:
            self._made = None
            self._outer.give()

    def close(self) -> None:
        if self.over:
            self._outer.take()
        super().close()

    def _tell_what_is_left(self) -> None:
        if self._outer.left:
            print(f"starling: training has ended before {len(self._outer.left)} samples of a lost member were "
                  "made up for", file=sys.stderr, flush=True)

    # What the program asks.

    @property
    def committed(self) -> bool:
        """Whether the inner step at hand counts: it does, but for one without samples."""
        return self._part > 0

    @property
    def ids(self) -> tuple[int, ...]:
        """The numbers of this member's samples in the inner step at hand; perhaps none."""
        if self._piece is None:
            return ()
        return (*(one for _, one in self._piece.late), *self._piece.ids)

    @property
    def inner(self) -> int:
        """The number of the inner step at hand within its outer step, from 0."""
        return self._piece.part if self._piece is not None else 0

    def log(self, **values: Any) -> None:
        """Means over this inner step's samples, such as loss=loss: the means over all inner steps travel
        with the outer step."""
        for name, value in values.items():
            sums = self._sums.setdefault(self._number(name), [0.0, 0.0])
            if self._part > 0:
                sums[0] += as_number(value) * self._part
                sums[1] += self._part

    def mean(self, name: str) -> float:
        """A metric's mean over all members in the last outer step."""
        if not self._has_means:
            raise RuntimeError("means are there after the first outer step")
        return self._library.mean(self._number(name))

    def weight(self, weight: float) -> None:
        raise RuntimeError("loader.weight() is for gradients that are summed; with DiLoCo a member's part counts "
                           "as many times as it has samples")

    def share(self) -> tuple[int, int] | None:
        raise RuntimeError("starling.collective needs iterations that all members make together; with DiLoCo "
                           "they make the outer steps together alone")
