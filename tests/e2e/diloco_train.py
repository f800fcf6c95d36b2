# SPDX-License-Identifier: Apache-2.0
"""A program of tests: a small network, trained by DiLoCo. 150 samples, in inner steps of 5 and outer ones of
15 of them, so that two workers have shares of 7 and 8."""
import argparse
import time

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, BATCH, INNER = 150, 5, 3
OUTER = {"lr": 0.7, "momentum": 0.9, "nesterov": True}  # torch.optim.SGD's


def read():
    generator = torch.Generator().manual_seed(11)
    inputs = torch.randn(SAMPLES, 6, generator=generator)
    return TensorDataset(inputs, (inputs[:, 0] * inputs[:, 1] > 0).long())


def make_model():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))


def make_optimizer(model, epochs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.01, total_steps=epochs * SAMPLES // BATCH + 1)


def step(model, optimizer, scheduler, inputs, labels):
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss


def main():
    import starling

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--readers", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.01, help="seconds an inner step")
    options = parser.parse_args()
    model = make_model()
    optimizer, scheduler = make_optimizer(model, options.epochs)
    loader = DataLoader(read(), BATCH, shuffle=True, num_workers=options.readers)
    loader = starling.elastic(loader, model, optimizer, scheduler, diloco=starling.DiLoCo(
        inner_steps=INNER, outer_lr=OUTER["lr"], momentum=OUTER["momentum"]))
    for _ in loader.epochs(options.epochs):
        for inputs, labels in loader:
            loader.log(loss=step(model, optimizer, scheduler, inputs, labels))
            time.sleep(options.pause)
    starling.save(model)


if __name__ == "__main__":
    main()
