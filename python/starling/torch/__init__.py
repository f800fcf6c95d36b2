# SPDX-License-Identifier: Apache-2.0
"""A PyTorch loop that any number of workers run, while they come, go and die (docs/how-to/pytorch.md).

    import starling.torch as starling

    loader = starling.elastic(loader, model, optimizer, scheduler)
    for epoch in loader.epochs(10):
        for inputs, labels in loader:          # this member's share of the batch
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()                    # gradients are summed among all meanwhile
            optimizer.step()
            scheduler.step()
    starling.save(model)                       # or nothing: it is the job's model either way

However many members there are, they compute the steps that one would: batch_size is that of all
together. An iteration counts or it does not. Where a peer dies before all have the sum, the gradients
are dropped, optimizer.step() does nothing, and the loader hands the same step out again, cut for who
is left: no exception, nothing to catch, nothing to restore.

The protocol is the library's (starling.embed); here lies what only this process can do: hooks that
collect gradients (_gradients.py), the state that whoever joins is given (_state.py), batches that fit
the view (_batches.py), what makes results reproducible (_reproducible.py), work beside the steps (_collective.py), the loop
(_loop.py), that of DiLoCo, whose members train by themselves for a while (_diloco.py, _outer_loop.py), and that of
members of several processes, among which FSDP2 cuts the model (_shard_group.py, _sharded.py).
"""
from starling.torch import _reproducible
from starling.torch._collective import collective
from starling.torch._diloco import DiLoCo
from starling.torch._elastic import elastic, save
from starling.torch._loop import Loader
from starling.torch._shard_group import ShardGroup, shard_group

_reproducible.begin()

__all__ = ["DiLoCo", "Loader", "ShardGroup", "collective", "elastic", "save", "shard_group"]
