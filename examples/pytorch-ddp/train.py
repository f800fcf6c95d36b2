#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits with plain PyTorch: DistributedDataParallel under torchrun, nothing of Starling.

Every worker goes on from the newest checkpoint that rank 0 wrote, so the job may be started again
with another number of workers at any time.
"""
import argparse
import csv
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def read(path):
    with open(path, encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    table = torch.tensor([[float(cell) for cell in row] for row in rows])
    return TensorDataset(table[:, :-1] / 16.0, table[:, -1].long())


def accuracy(model, data):
    features, labels = data.tensors
    with torch.no_grad():
        return (model(features).argmax(dim=1) == labels).float().mean().item()


def save(path, model, optimizer, epoch):
    """By rename: whoever reads it reads a whole one."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
               path + ".new")
    os.replace(path + ".new", path)


def load(path, model, optimizer):
    """The epoch to go on with. Rank 0 alone looks, for disks may differ; the others are told."""
    state = [torch.load(path) if dist.get_rank() == 0 and os.path.exists(path) else None]
    dist.broadcast_object_list(state)
    if state[0] is None:
        return 0
    model.load_state_dict(state[0]["model"])
    optimizer.load_state_dict(state[0]["optimizer"])
    return state[0]["epoch"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="/opt/digits", help="folder of digits-train.csv")
    parser.add_argument("--checkpoint", default=os.environ.get("STARLING_JOB_DIR", "/tmp"),
                        help="folder")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64, help="samples a step, of all workers")
    parser.add_argument("--pause", type=float, default=0, help="seconds after each epoch")
    parser.add_argument("--at-least", type=float, default=0, help="fail below this accuracy")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    train = read(os.path.join(options.data, "digits-train.csv"))
    test = read(os.path.join(options.data, "digits-test.csv"))
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(),
                                torch.nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    path = os.path.join(options.checkpoint, "pytorch-ddp.pt")
    first = load(path, model, optimizer)
    parallel = DistributedDataParallel(model)
    print(f"rank {rank} of {size} starts at epoch {first}", flush=True)

    sampler = DistributedSampler(train, num_replicas=size, rank=rank)
    loader = DataLoader(train, batch_size=max(options.batch // size, 1), sampler=sampler)
    for epoch in range(first, options.epochs):
        sampler.set_epoch(epoch)
        for features, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(parallel(features), labels)
            loss.backward()
            optimizer.step()
        if rank == 0:
            save(path, model, optimizer, epoch + 1)
            print(f"epoch {epoch + 1}/{options.epochs} workers {size} loss {loss.item():.4f} "
                  f"accuracy {accuracy(model, test):.4f}", flush=True)
        time.sleep(options.pause)
    reached = accuracy(model, test)
    dist.barrier()
    dist.destroy_process_group()
    if reached < options.at_least:
        raise SystemExit(f"accuracy {reached:.4f} is below {options.at_least}")


if __name__ == "__main__":
    main()
