# SPDX-License-Identifier: Apache-2.0
"""The peer of bench/step_time.py: PyTorch, with DistributedDataParallel for two and more.

    ddp_step_time.py digits|mnist|mlp10m|alexnet64|vgg16-64 PROCESSES STEPS DATA

Prints rank 0's time at the end of each step, in seconds, one a line.
"""
import gzip
import os
import sys
import time

import numpy
import torch
from torch import nn
import torch.distributed as dist
import torch.multiprocessing

from step_time_sizes import BATCH, HIDDEN, SAMPLES

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "tests/models"))
import networks  # noqa: E402  (the path must come first)


def digits(name):
    """A loader of the perceptron `name` for the digits."""
    def load(data):
        return load_digits(data, HIDDEN[name])
    return load


def load_digits(data, hidden):
    table = numpy.loadtxt(os.path.join(data, "digits-train.csv"), delimiter=",", skiprows=1,
                          dtype=numpy.float32)
    features = table[:, :-1]
    deviation = features.std(0)
    deviation[deviation == 0] = 1
    layers = []
    for inputs, outputs in zip([64, *hidden], hidden):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(hidden[-1], 10))
    return (features - features.mean(0)) / deviation, table[:, -1], network


def load_mnist(data):
    with gzip.open(os.path.join(data, "mnist10k-images-idx3-ubyte.gz")) as file:
        images = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(os.path.join(data, "mnist10k-labels-idx1-ubyte.gz")) as file:
        labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8)
    features = images[:8000].astype(numpy.float32) / 255
    network = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                            nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                            nn.Linear(84, 10))
    return (features - features.mean()) / features.std(), labels[:8000], network


def made_up(network):
    """A loader of a network for images of 64 by 64."""
    def load(_data):
        draw = numpy.random.default_rng(1)
        features = draw.standard_normal((SAMPLES, 3, 64, 64), numpy.float32)
        return features, draw.integers(0, 10, SAMPLES), network(10)
    return load


LOADERS = {"digits": digits("digits"), "mnist": load_mnist, "mlp10m": digits("mlp10m"),
           "alexnet64": made_up(networks.AlexNet), "vgg16-64": made_up(networks.Vgg16)}


def train(rank, name, processes, steps, data):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    features, labels, network = LOADERS[name](data)
    features = torch.from_numpy(numpy.ascontiguousarray(features))
    labels = torch.from_numpy(labels.astype(numpy.int64))
    if processes > 1:
        dist.init_process_group("gloo", init_method=os.environ["BENCH_RENDEZVOUS"], rank=rank,
                                world_size=processes)
        network = nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True)
    rate = 0.001 if name in ("alexnet64", "vgg16-64") else 0.05
    optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9)
    times = []
    order = torch.empty(0, dtype=torch.int64)
    while len(times) < steps:
        if len(order) == 0:
            order = torch.randperm(len(labels))
        batch, order = order[:BATCH[name]], order[BATCH[name]:]
        begin, end = (len(batch) * i // processes for i in (rank, rank + 1))
        mine = batch[begin:end]
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(features[mine]), labels[mine]).backward()
        optimizer.step()
        times.append(time.perf_counter())
    if rank == 0:
        print("\n".join(f"{moment:.7f}" for moment in times))


def main():
    name, processes, steps, data = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    if processes == 1:
        train(0, name, 1, steps, data)
        return
    rendezvous = f"/tmp/starling-bench-{os.getpid()}"
    os.environ["BENCH_RENDEZVOUS"] = "file://" + rendezvous
    try:
        torch.multiprocessing.spawn(train, (name, processes, steps, data), nprocs=processes)
    finally:
        if os.path.exists(rendezvous):
            os.remove(rendezvous)


if __name__ == "__main__":
    main()
