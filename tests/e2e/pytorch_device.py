# SPDX-License-Identifier: Apache-2.0
"""A program of tests: the example's loop, whose model lies on the device of tests/torch/standin_device.cc.

usage: pytorch_device.py TRAIN.PY DATA EPOCHS [--mixed]

--mixed: its first layer stays on the host.
"""
import importlib.util
import os
import sys

import torch
from torch.nn import functional
from torch.utils.data import DataLoader

import starling.torch as starling

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../torch"))
import standin  # noqa: E402


def example(path):
    spec = importlib.util.spec_from_file_location("train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    path, data, epochs, *flags = sys.argv[1:]
    device = standin.load()
    train = example(path)
    samples = train.read(os.path.join(data, "digits-train.csv"))
    loader = DataLoader(samples, 64, shuffle=True)
    model = train.make_model().to(device)
    first = torch.device("cpu") if "--mixed" in flags else device
    model[0].to(first)
    optimizer, scheduler = train.make_optimizer(model, int(epochs) * len(loader))
    loader = starling.elastic(loader, model, optimizer, scheduler)
    for _ in loader.epochs(int(epochs)):
        for inputs, labels in loader:
            optimizer.zero_grad()
            hidden = model[0](inputs.to(first)).to(device)
            loss = functional.cross_entropy(model[1:](hidden), labels.to(device))
            loader.log(loss=loss)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
    starling.save(model)


if __name__ == "__main__":
    main()
