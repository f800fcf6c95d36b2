# SPDX-License-Identifier: Apache-2.0
"""How far a job's model is from what one process computes: plain PyTorch, nothing of Starling.

usage: pytorch_reference.py TRAIN.PY DATA AUDIT MODEL EPOCHS

The order of the samples is the audit's. Prints the largest difference of a parameter.
"""
import glob
import importlib.util
import json
import os
import struct
import sys
import types

import torch


def program(path):
    """The example's functions, without what it imports of Starling."""
    sys.modules["starling"] = types.ModuleType("starling")
    sys.modules["starling.torch"] = types.ModuleType("starling.torch")
    sys.modules["starling"].torch = sys.modules["starling.torch"]
    spec = importlib.util.spec_from_file_location("train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def steps_of(audit):
    for path in sorted(glob.glob(f"{audit}/*.jsonl")):
        with open(path, encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)["samples"]


def read_safetensors(path):
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(bytearray(data[slice(*one["data_offsets"])]),
                                   dtype=torch.float32).view(one["shape"])
            for name, one in header.items()}


def main():
    path, data, audit, result, epochs = sys.argv[1:]
    train = program(path)
    samples = train.read(os.path.join(data, "digits-train.csv"))
    model = train.make_model()
    steps = list(steps_of(audit))
    optimizer, scheduler = train.make_optimizer(model, int(epochs) * -(-len(samples) // 64))
    for ids in steps:
        inputs, labels = samples[torch.tensor(ids)]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    found = read_safetensors(result)
    expected = model.state_dict()
    if found.keys() != expected.keys():
        sys.exit(f"the model's file holds {sorted(found)}, not {sorted(expected)}")
    print(max((found[name] - expected[name]).abs().max().item() for name in expected))


if __name__ == "__main__":
    main()
