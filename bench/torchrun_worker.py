# SPDX-License-Identifier: Apache-2.0
"""The peer of bench/recovery.py: what torchrun starts, twice, and starts again after a failure.

Written as PyTorch's elastic guide advises: load the checkpoint if there is one, save one now and
then on rank 0, let torchrun restart everybody when anybody fails.
"""
import os
import sys
import time

import torch
from torch import nn
import torch.distributed as dist

BATCH = 64  # samples a process and step
SAVE_EVERY = 50
PAUSE = 0.005


def load(path, network):
    if not os.path.exists(path):
        return 0
    saved = torch.load(path)
    network.load_state_dict(saved["network"])
    return saved["step"]


def save(path, network, step):
    torch.save({"network": network.state_dict(), "step": step}, path + ".new")
    os.replace(path + ".new", path)


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    network = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                            nn.Linear(1024, 10))
    checkpoint = os.path.join(folder, "checkpoint")
    start = load(checkpoint, network)
    model = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    features = torch.randn(BATCH, 784)
    labels = torch.randint(10, (BATCH,))
    with open(os.path.join(folder, f"steps.{rank}"), "a", buffering=1, encoding="ascii") as log:
        for step in range(start + 1, 1000000):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(features), labels).backward()
            optimizer.step()
            log.write(f"step {step} {time.time():.6f} {os.getpid()}\n")
            if rank == 0 and step % SAVE_EVERY == 0:
                save(checkpoint, network, step)
            time.sleep(PAUSE)


main()
