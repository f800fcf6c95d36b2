# SPDX-License-Identifier: Apache-2.0
"""A loop of your own as an elastic member of a job, on plain arrays.

    run = starling.join(state={"w": w}, samples=n, batch=64, epochs=10)
    for step in run:                              # step.ids: the samples that are mine
        g = gradient(w, step.ids)                 # the mean over them
        if step.reduce({"w": g}, loss=loss):      # g is the mean over all members now
            w -= rate * g

The script means the same for any number of members: together they make the steps that one process
would, each with its share of the same batch. A step counts when `reduce` says so. If a member dies
in it, it does not: change nothing, and the loop gives the same step again, cut for those who are
left. The arrays of `state` are sent to members that join, and stand in checkpoints; the library
reads and writes them between two steps only.
"""
from __future__ import annotations

import atexit
import os
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from starling.embed import _library
from starling.embed._library import Library, LoopError
from starling.embed._memory import Memory

__all__ = ["LoopError", "Run", "Step", "join"]

# What starling.embed.launch has opened for the script that it runs.
_opened: list[Library] = []
# And the script with its arguments.
_command: list[str] = []


@dataclass
class Step:
    """What this member is to do of one step."""

    number: int  # from 1
    epoch: int  # from 1
    step_of_epoch: int  # from 0
    steps_per_epoch: int
    batch: int  # samples of all members together
    position: int  # of the first id, in the order of the epoch
    ids: Sequence[int]  # my samples, perhaps none: then their gradient is zero
    view: int
    rank: int  # mine, from 0
    members: int
    restored: bool  # the state was overwritten: by a copy of the others', or by a checkpoint
    repeated: bool  # this step was given before, and did not count
    interrupted: bool  # some member may have been given it before, in a view that has broken
    last: bool  # of training, if its end stays where it is
    committed: bool = field(default=False, init=False)
    _run: Run | None = field(default=None, repr=False)

    def reduce(self, gradients: Mapping[str, Any], weight: float | None = None,
               **metrics: float) -> bool:
        """Reduces the gradients over all members, and tells whether the step counts.

        `gradients` are means over my samples, under the names of their arrays; where the step counts
        they have become the mean over all members' weights, in place. `weight`: mostly, and by default, the
        number of my samples. `metrics` are means over my samples too.
        """
        assert self._run is not None
        own = float(len(self.ids)) if weight is None else float(weight)
        self.committed = self._run._reduce(gradients, own, metrics)
        return self.committed


class Run:
    """This process as a member of its job; iterate over it once."""

    def __init__(self, library: Library, state: Mapping[str, Memory], buckets: Mapping[str, int],
                 metrics: Sequence[str], refresh: Callable[[], None] | None = None) -> None:
        self.library = library
        self._refresh = refresh
        # Behind the last step: the state was overwritten since, as Step.restored tells of a step.
        self.restored = False
        self._state = state  # the memory stays
        self._buckets = {name: index for index, name in enumerate(buckets)}
        self._elements = dict(buckets)
        self._metrics = {name: index for index, name in enumerate(["loss", *metrics])}
        self._over = False
        self._open = True
        self._failed = False
        self._process = os.getpid()  # a forked one is no member
        self._hook = sys.excepthook
        sys.excepthook = self._on_exception
        atexit.register(self._at_exit)

    def __iter__(self) -> Iterator[Step]:
        while (step := self.next()) is not None:
            yield step

    def next(self) -> Step | None:
        """The next step; none when training is over. SystemExit when the job lets this process go."""
        found = _library.CStep()
        while (code := self.library.next(found)) == _library.STATE_WANTED:
            self._bring_up_to_date()
        if code == _library.LEFT:
            raise SystemExit(0)
        if code == _library.OVER:
            self._over = True
            self.restored = bool(found.flags & _library.STATE_REPLACED)
            return None
        ids = array("q", found.ids[:found.count])
        return Step(found.number, found.epoch, found.step_of_epoch, found.steps_per_epoch,
                    found.batch, found.position, ids, found.view, found.rank, found.members,
                    bool(found.flags & _library.STATE_REPLACED),
                    bool(found.flags & _library.REPEATED),
                    bool(found.flags & _library.INTERRUPTED), bool(found.flags & _library.LAST),
                    _run=self)

    def _bring_up_to_date(self) -> None:
        assert self._refresh is not None  # else no part of the state is a copy
        try:
            self._refresh()
        except Exception as error:
            raise LoopError(_library.FAILED, "the copies of the state could not be brought up to date: "
                                             f"{error}") from error

    def _reduce(self, gradients: Mapping[str, Any], weight: float,
                metrics: Mapping[str, float]) -> bool:
        memories: dict[int, Memory] = {}
        for name, gradient in gradients.items():
            if name not in self._buckets:
                raise KeyError(f"{name}: no gradient of this name was declared; there are "
                               f"{', '.join(self._buckets) or 'none'}")
            memory = Memory(name, gradient)
            memories[self._buckets[name]] = memory
            self.library.add(self._buckets[name], memory.dtype, memory.address, memory.elements,
                             weight)
        for name, value in metrics.items():
            if name not in self._metrics:
                raise KeyError(f"{name}: no metric of this name was declared; name it in "
                               "join(metrics=...)")
            self.library.log(self._metrics[name], value)
        if self.library.reduce(weight) != _library.COMMITTED:
            return False
        for bucket, memory in memories.items():
            self.library.take(bucket, memory.dtype, memory.address, memory.elements)
        return True

    def order(self, step: int, rank: int, members: int) -> list[int]:
        """The samples of that share of a step, whatever the present view is."""
        return self.library.order(step, rank, members)

    def leave(self) -> None:
        """Asks to be let go, as SIGTERM does."""
        self.library.leave()

    def close(self) -> None:
        """After the last step: the result is written, and the job lets this process go."""
        if not self._open or os.getpid() != self._process:
            return
        self._open = False
        sys.excepthook = self._hook
        while self.library.close() == _library.STATE_WANTED:
            self._bring_up_to_date()

    def abandon(self) -> None:
        """Ends the membership at once: the script has failed."""
        if self._open and os.getpid() == self._process:
            self._open = False
            self.library.abandon()

    def _on_exception(self, kind: type[BaseException], error: BaseException,
                      trace: TracebackType | None) -> None:
        self._failed = True
        self._hook(kind, error, trace)

    def _at_exit(self) -> None:
        if self._failed:
            return self.abandon()
        try:
            self.close()
        except LoopError as error:
            # Nothing else can change the exit code from here.
            print(f"starling: {error}", file=sys.stderr, flush=True)
            sys.stdout.flush()
            os._exit(1)


def join(*, state: Mapping[str, Any], samples: int, batch: int = 0, epochs: int = 0,
         steps: int = 0, gradients: Mapping[str, int] | None = None,
         metrics: Sequence[str] = (), model: Sequence[str] | None = None, digest: str = "",
         identity: str = "", flags: Sequence[str] | None = None,
         refresh: Callable[[], None] | None = None) -> Run:
    """Makes this process a member of the job that has started it.

    state: arrays by name, the same at all members; they stay where they are.
    samples, batch: how many there are, and how many make a step, of all members together (0: the
    job's spec.dataset.globalBatchSize).
    epochs, steps: when training ends, where spec.stop does not say it.
    gradients: elements by name; by default those of the parts of `state` that are floats.
    metrics: names beside "loss" that are logged with a step; seven at most.
    model: names of `state` that the result's model file holds; by default all.
    digest: names the data: members with another are not let in.
    flags: of the role; by default those that starling.embed.launch was given.
    refresh: where the arrays of `state` are copies of what lies elsewhere, such as on a GPU: brings them
    up to date. It is called while the loop asks for its next step, and at the end, when a joiner or a
    checkpoint needs them; where step.restored, or run.restored behind the loop, copy the other way.
    """
    library = _opened.pop() if _opened and flags is None else Library()
    if flags is not None:
        library.open(flags)
    elif not library.is_open():
        raise LoopError(_library.BAD_INPUT, "this process was not started by a job: run the script "
                                            "by one, or give join(flags=...)")
    memories = {name: Memory(name, part) for name, part in state.items()}
    library.set_samples(samples, batch, digest)
    library.set_end(epochs, steps)
    library.set_identity(identity)
    for name in metrics:
        library.add_metric(name)
    for name, memory in memories.items():
        library.add_state(name, memory.dtype, memory.shape, memory.address,
                          model is None or name in model, refresh is not None)
    buckets = dict(gradients) if gradients is not None else {
        name: memory.elements for name, memory in memories.items()
        if memory.dtype in ("F32", "F64")}
    for elements in buckets.values():
        library.add_bucket(elements)
    library.start()
    return Run(library, memories, buckets, metrics, refresh)
