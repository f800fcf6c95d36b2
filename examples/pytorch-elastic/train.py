# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits by an ordinary PyTorch loop; the lines that Starling adds end with a comment.

Any number of workers run it together. Kill one, or add one: the others do not start again.
"""
import argparse
import csv
import os

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import starling.torch as starling  # 1


def read(path):
    with open(path, encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    table = torch.tensor([[float(cell) for cell in row] for row in rows])
    return TensorDataset(table[:, :-1] / 16.0, table[:, -1].long())


def make_model(seed=7):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64),
                               torch.nn.ReLU(), torch.nn.Linear(64, 10))


def make_optimizer(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.004, total_steps=steps + 1)


def accuracy(model, data):
    features, labels = data.tensors
    with torch.no_grad():
        return (model(features).argmax(dim=1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.path.join(os.path.dirname(__file__), "../data"),
                        help="folder of digits-train.csv and digits-test.csv")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="samples a step, of all workers")
    parser.add_argument("--readers", type=int, default=0, help="processes that read ahead")
    options = parser.parse_args()
    train = read(os.path.join(options.data, "digits-train.csv"))
    test = read(os.path.join(options.data, "digits-test.csv"))
    loader = DataLoader(train, options.batch, shuffle=True, num_workers=options.readers)
    model = make_model()
    optimizer, scheduler = make_optimizer(model, options.epochs * len(loader))
    loader = starling.elastic(loader, model, optimizer, scheduler)  # 2

    for epoch in loader.epochs(options.epochs):  # 3
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(inputs), labels)
            loader.log(loss=loss)  # for starling get jobs -w and the page
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        print(f"epoch {epoch + 1}: accuracy {accuracy(model, test):.4f}", flush=True)
    starling.save(model)


if __name__ == "__main__":
    main()
