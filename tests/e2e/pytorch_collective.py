# SPDX-License-Identifier: Apache-2.0
"""A program of tests: the example's model, evaluated by all members together every tenth step, and by each
alone. Says what either has found."""
import argparse
import importlib.util

import torch
from torch.utils.data import DataLoader

import starling.torch as starling
from say import say


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("example")
    parser.add_argument("data")
    options = parser.parse_args()
    spec = importlib.util.spec_from_file_location("example", options.example)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    train = example.read(f"{options.data}/digits-train.csv")
    features, labels = example.read(f"{options.data}/digits-test.csv").tensors
    model = example.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def right(part):
        return (model(features[part]).argmax(dim=1) == labels[part]).sum().item()

    @starling.collective
    def evaluate(index, of):
        part = slice(index, None, of)
        return {"accuracy": (right(part), len(labels[part]))}

    loader = starling.elastic(DataLoader(train, 64, shuffle=True), model, optimizer,
                              metrics=["accuracy"])
    for _ in loader.epochs(2):
        for inputs, targets in loader:
            due = loader.step % 10 == 0
            if due:
                evaluate(loader)
                alone = right(slice(None)) / len(labels)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            if due and loader.committed:
                say(step=loader.step, all=loader.mean("accuracy"), alone=alone)


if __name__ == "__main__":
    main()
