# SPDX-License-Identifier: Apache-2.0
"""The example's model and optimizer, cut by FSDP2 among the processes of each member.

usage: shard_group_train.py [--processes N] [--more POD N] [--die POD STEP RANK] [--without WHAT] [--tell FOLDER]
                            [--spoil WHAT] [--fail-at-end] PROGRAM DATA EPOCHS

--more has that pod be so many processes. --die kills a process of the group with -9, once, in the middle of
that step's backward pass. --without leaves out what makes the loop right. --tell has the first process write
who has come to the end with which parameters. --spoil gives elastic what it refuses. --fail-at-end has the
other processes end with another code than 0 when training is over.
"""
import argparse
import hashlib
import importlib.util
import os
import signal

import torch
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.utils.data import DataLoader

import starling.torch as starling
from starling.torch import _shard_group, _sharded


def example(path):
    spec = importlib.util.spec_from_file_location("train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pod(first):
    """Whose process this is: the flags of the first one's command tell it."""
    with open(f"/proc/{os.getpid() if first else os.getppid()}/cmdline", encoding="utf-8") as file:
        words = file.read().split("\0")
    return words[words.index("--pod-name") + 1]


def leave_out(what):
    if what == "across":
        exchange = _shard_group.First._exchange

        def alone(self, weight):
            own = self._flat.clone()
            outcome = exchange(self, weight)
            self._flat.copy_(own.div_(weight))
            return outcome
        _shard_group.First._exchange = alone
    elif what == "scale":
        _sharded.ShardedLoader._scale = lambda self: 1.0
    elif what is not None:
        raise SystemExit(f"nothing is called {what}")


def die_in_backward(model, due):
    def forwarded(module, inputs, output):
        if torch.is_grad_enabled() and due():
            output.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    model[1].register_forward_hook(forwarded)


def tell(folder, model, group):
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.full_tensor().numpy().tobytes())
    if group.rank == 0:
        with open(os.path.join(folder, str(os.getpid())), "w", encoding="utf-8") as file:
            file.write(f"{digest.hexdigest()} 0")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--more", nargs=2)
    parser.add_argument("--die", nargs=3)
    parser.add_argument("--without")
    parser.add_argument("--tell")
    parser.add_argument("--spoil")
    parser.add_argument("--fail-at-end", action="store_true")
    parser.add_argument("program")
    parser.add_argument("data")
    parser.add_argument("epochs", type=int)
    options = parser.parse_args()
    leave_out(options.without)
    first = "STARLING_SHARD_GROUP" not in os.environ
    name = pod(first)
    group = starling.shard_group(int(options.more[1]) if options.more and options.more[0] == name
                                 else options.processes)

    train = example(options.program)
    samples = train.read(os.path.join(options.data, "digits-train.csv"))
    loader = DataLoader(samples, 64, shuffle=True)
    model = train.make_model()
    if options.spoil == "averages":
        model.append(torch.nn.BatchNorm1d(10))
    fully_shard(model[0])
    if options.spoil != "whole":
        fully_shard(model)
    optimizer, scheduler = train.make_optimizer(model, options.epochs * len(loader))
    loader = starling.elastic(loader, model, optimizer, scheduler, group=group)

    if options.die is not None:
        mark = os.path.join(os.path.dirname(os.environ["STARLING_MODEL"]), "killed")

        def due():
            if options.die != [name, str(loader.step), str(group.rank)] or os.path.exists(mark):
                return False
            with open(mark, "w", encoding="utf-8"):
                return True
        die_in_backward(model, due)

    for _ in loader.epochs(options.epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(inputs), labels)
            loader.log(loss=loss)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
    if options.tell:
        tell(options.tell, model, group)
    if options.fail_at_end and group.rank != 0:
        raise SystemExit(3)


if __name__ == "__main__":
    main()
