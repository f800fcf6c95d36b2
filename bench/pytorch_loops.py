# SPDX-License-Identifier: Apache-2.0
"""The programs of bench/pytorch.py: one model, one data set, and a loop for each side.

    pytorch_loops.py starling|ddp|torchft MODEL PAUSE FOLDER

All sides together have the model's batch a step, and one compute thread a process. Steps are logged into
FOLDER as in harness.py (Starling's by its workers); a batch that was dropped as "drop".
"""
import os
import sys
import time

# Before libraries read them: torch.set_num_threads does not reach OpenBLAS.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset  # noqa: E402

SAVE_EVERY = 50  # steps between two checkpoints, where there are no others
EPOCHS = 1000000


class Block(nn.Module):
    """Two convolutions and what was there before (He and others 2016)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        same = stride == 1 and inputs == outputs
        self.beside = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images):
        return torch.relu(self.body(images) + self.beside(images))


def resnet18():
    """For images of 32 by 32; 11 million parameters."""
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Transformer(nn.Module):
    """Four layers over 64 characters, the next one of each; 3 million parameters."""

    def __init__(self, width=256, length=64, characters=128):
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(width, characters)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, text):
        return self.head(self.layers(self.characters(text) + self.places, self.mask)).transpose(1, 2)


def mlp():
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                         nn.Linear(1024, 10))


# By name: the model, its batch, and a data set of so many samples.
MODELS = {
    "mlp": (mlp, 128, lambda: (torch.randn(2048, 784), torch.randint(10, (2048,)))),
    "resnet18": (resnet18, 16, lambda: (torch.randn(256, 3, 32, 32), torch.randint(10, (256,)))),
    "transformer": (Transformer, 16, lambda: (torch.randint(128, (512, 64)),
                                              torch.randint(128, (512, 64)))),
}


class Log:
    """Of this process; the reader sees whole lines only."""

    def __init__(self, folder, source):
        self._file = open(os.path.join(folder, f"steps.{source}"), "a", buffering=1, encoding="ascii")

    def __call__(self, number, what="step"):
        self._file.write(f"{what} {number} {time.time():.6f} {os.getpid()}\n")


def step_of(model, optimizer, inputs, labels, pause):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    time.sleep(pause)


def starling(model, batch, data, pause, _):
    import starling.torch
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = starling.torch.elastic(DataLoader(data, batch, shuffle=True), model, optimizer)
    for _ in loader.epochs(EPOCHS):
        for inputs, labels in loader:
            step_of(model, optimizer, inputs, labels, pause)


def ddp(model, batch, data, pause, folder):
    """As PyTorch's elastic guide advises: everybody starts again from a checkpoint of rank 0's."""
    torch.distributed.init_process_group("gloo")
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    checkpoint, number = os.path.join(folder, "checkpoint"), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        number = saved["step"]
    parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    log = Log(folder, rank)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch // size, sampler=sampler)
    first = number % len(loader)
    for epoch in range(number // len(loader), EPOCHS):
        sampler.set_epoch(epoch)
        for place, (inputs, labels) in enumerate(loader):
            if place < first:
                continue
            step_of(parallel, optimizer, inputs, labels, pause)
            number += 1
            log(number)
            if rank == 0 and number % SAVE_EVERY == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                            "step": number}, checkpoint + ".new")
                os.replace(checkpoint + ".new", checkpoint)
        first = 0


def torchft(model, batch, data, pause, folder):
    """As in torchft's train_ddp.py, a replica group of one process each."""
    from datetime import timedelta

    import torchft as ft
    group, groups = int(os.environ["REPLICA_GROUP_ID"]), int(os.environ["NUM_REPLICA_GROUPS"])
    inner = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def load(state):
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = ft.Manager(pg=ft.ProcessGroupGloo(timeout=timedelta(seconds=5)), min_replica_size=1,
                         load_state_dict=load, replica_id=f"bench_{group}", timeout=timedelta(seconds=10),
                         state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()})
    parallel = ft.DistributedDataParallel(manager, model)
    optimizer = ft.Optimizer(manager, inner)
    log = Log(folder, group)
    while True:
        sampler = ft.data.DistributedSampler(data, replica_rank=group, num_replica_groups=groups,
                                             group_rank=0, num_replicas=1, shuffle=True)
        for inputs, labels in DataLoader(data, batch // groups, sampler=sampler):
            before = manager.current_step()
            step_of(parallel, optimizer, inputs, labels, pause)
            committed = manager.current_step() > before
            log(manager.current_step(), "step" if committed else "drop")


def main():
    side, name, pause, folder = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    make, batch, samples = MODELS[name]
    {"starling": starling, "ddp": ddp, "torchft": torchft}[side](
        make(), batch, TensorDataset(*samples()), pause, folder)


if __name__ == "__main__":
    main()
