# SPDX-License-Identifier: Apache-2.0
"""This member's share of each batch, read ahead.

The program's DataLoader is made again over a sampler that asks, whenever a batch is about to be read,
which step it will be for and what this member's share of it is in the view of that moment. What was
read ahead and does not fit any more when its step comes is thrown away; the loader's processes stay.
"""
from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, Iterator, NamedTuple, Sequence

import torch
import torch.utils.data

from starling.embed import Step
from starling.torch._reproducible import Sown


class Piece(NamedTuple):
    """A batch that a member is given of its share of a step."""

    step: int
    part: int  # from 0
    ids: tuple[int, ...]
    # Samples of earlier steps that are made up for, each with its step; they come first.
    late: tuple[tuple[int, int], ...] = ()

    @property
    def samples(self) -> int:
        return len(self.late) + len(self.ids)


# The pieces of a step for member `rank` of `members`: (step, rank, members).
Cut = Callable[[int, int, int], "list[Piece]"]


def split(ids: Sequence[int], parts: int) -> list[tuple[int, ...]]:
    """A share in so many parts of nearly the same size, perhaps empty ones."""
    count = len(ids)
    return [tuple(ids[part * count // parts:(part + 1) * count // parts]) for part in range(parts)]


class _Shares:
    """The batch sampler: shares of one step after another, each in its parts, without end."""

    def __init__(self, run: Any, order: "_Order", cut: Cut) -> None:
        self._run = run
        self._order = order
        self._cut = cut
        self._coming: collections.deque[Piece] = collections.deque()
        self._step = 1
        self.pulled: collections.deque[Piece] = collections.deque()

    def go_to(self, step: Step, wanted: Piece) -> None:
        """The next batches that are pulled are those of the step at hand, from `wanted` on."""
        mine = self._cut(step.number, step.rank, step.members)
        self._coming = collections.deque(mine[mine.index(wanted):])
        self._step = step.number + 1

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            if not self._coming:
                view = self._run.view()
                self._coming.extend(self._cut(self._step, view.rank, max(view.members, 1)))
                self._step += 1
            batch = self._coming.popleft()
            self.pulled.append(batch)
            yield self._order.keys(batch)


class _Order:
    """From the library's numbers of samples to the data set's indices.

    A loader that shuffles uses the library's own order, another for each epoch. Any other sampler is
    listed once an epoch, under a seed that is the same everywhere, and the library's order is undone.
    """

    def __init__(self, run: Any, loader: "torch.utils.data.DataLoader[Any]", batch: int, seed: int,
                 reproducible: bool) -> None:
        sampler = loader.sampler
        self._with_epoch = reproducible  # what the data set is asked by: see Sown
        self._shuffles = (isinstance(sampler, torch.utils.data.RandomSampler) and
                          not sampler.replacement)
        self._sampler = sampler
        self._run = run
        self._seed = seed
        self.samples = len(sampler)
        self.steps = -(-self.samples // batch)
        self._listed: dict[int, dict[int, int]] = {}  # by epoch: number to index

    def keys(self, piece: Piece) -> list[Any]:
        late = [self.indices(step, (one,))[0] for step, one in piece.late]
        indices = late if late and not piece.ids else late + self.indices(piece.step, piece.ids)
        if not self._with_epoch:
            return indices
        return [(index, (piece.step - 1) // self.steps) for index in indices]

    def indices(self, step: int, ids: tuple[int, ...]) -> list[int]:
        """Of a member without samples of a step, one: it computes, and counts nothing."""
        if not ids:
            ids = tuple(self._run.order(step, 0, 1))[:1]
        if self._shuffles:
            return list(ids)
        epoch = (step - 1) // self.steps
        if epoch not in self._listed:
            # Batches are read ahead over the end of an epoch, but no further back than this one.
            self._listed = {kept: listed for kept, listed in self._listed.items() if kept == epoch - 1}
            self._listed[epoch] = self._list(epoch)
        return [self._listed[epoch][one] for one in ids]

    def _list(self, epoch: int) -> dict[int, int]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed + epoch)
            if hasattr(self._sampler, "set_epoch"):
                self._sampler.set_epoch(epoch)
            indices = list(self._sampler)
        if len(indices) != self.samples:
            raise RuntimeError(f"the sampler listed {len(indices)} samples for an epoch, but its length "
                               f"is {self.samples}")
        numbers: list[int] = []
        for step in range(epoch * self.steps + 1, (epoch + 1) * self.steps + 1):
            numbers += self._run.order(step, 0, 1)
        return dict(zip(numbers, indices))


def _refuse(loader: "torch.utils.data.DataLoader[Any]") -> None:
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        raise ValueError("an IterableDataset has no numbered samples that members could share; give "
                         "elastic() a loader over a data set with __len__ and __getitem__")
    if loader.batch_size is None:
        raise ValueError("the loader has a batch_sampler or no batches at all; give it batch_size, the "
                         "samples of one step of all members together")
    if loader.drop_last:
        raise ValueError("the loader drops the last batch of an epoch (drop_last=True), where elastic "
                         "training uses every sample; leave it out")


class Batches:
    """Confined to the thread of the loop. `batch`: samples of a step, of all members together; what a
    member is given of it comes as it is `cut`."""

    def __init__(self, run: Any, loader: "torch.utils.data.DataLoader[Any]", batch: int, cut: Cut,
                 seed: int, reproducible: bool) -> None:
        _refuse(loader)
        self._order = _Order(run, loader, batch, seed, reproducible)
        self._shares = _Shares(run, self._order, cut)
        data = Sown(loader.dataset, seed) if reproducible else loader.dataset
        self._loader = self._rebuild(loader, data)
        self._iterator: Iterator[Any] | None = None
        self._last: tuple[Piece, Any] | None = None
        self.thrown_away = 0

    @property
    def samples(self) -> int:
        return self._order.samples

    @property
    def steps_per_epoch(self) -> int:
        return self._order.steps

    def _rebuild(self, loader: "torch.utils.data.DataLoader[Any]", data: Any) -> Any:
        options = {name: getattr(loader, name) for name in
                   ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn",
                    "multiprocessing_context", "generator")}
        if loader.num_workers > 0:
            options["prefetch_factor"] = loader.prefetch_factor
        return torch.utils.data.DataLoader(data, batch_sampler=self._shares, **options)

    def take(self, step: Step, wanted: Piece) -> Any:
        """The batch of this piece of the step at hand."""
        if self._last is not None and self._last[0] == wanted:
            return self._last[1]
        if self._iterator is None:
            self._shares.go_to(step, wanted)
            self._iterator = iter(self._loader)
        self._last = None
        moved = False
        while True:
            data = next(self._iterator)
            found = self._shares.pulled.popleft()
            if found == wanted:
                self._last = (found, data)
                return data
            self.thrown_away += 1
            if not moved and wanted not in self._shares.pulled:
                self._shares.go_to(step, wanted)
                moved = True
