# SPDX-License-Identifier: Apache-2.0
"""What DiLoCo comes to by plain PyTorch in one process: each member is a copy that is trained by itself, and
torch.optim.SGD makes the outer steps. Nothing of Starling.

usage: diloco_reference.py AUDIT MODEL EPOCHS < CONTRIBUTIONS

The samples of each step are the audit's. CONTRIBUTIONS is a JSON list, an outer step each, of which stretches
of its samples were contributed ("made"), and whether others are made up for in the next one ("finishes").
Prints the largest difference of a parameter, how often each sample was used, and what is still left over.
"""
import collections
import copy
import json
import sys

import torch

import diloco_train
from pytorch_reference import read_safetensors, steps_of


def tensors_of(optimizer):
    return [value for kept in optimizer.state.values() for value in kept.values()]


class Simulation:
    def __init__(self, epochs):
        self.data = diloco_train.read()
        self.model = diloco_train.make_model()
        self.inner = diloco_train.make_optimizer(self.model, epochs)
        self.outer = torch.optim.SGD(self.model.parameters(), **diloco_train.OUTER)

    def member(self, work, count):
        """What one makes of these samples in so many inner steps."""
        model, optimizer, scheduler = copy.deepcopy((self.model, *self.inner))
        for part in range(count):
            some = work[part * len(work) // count:(part + 1) * len(work) // count]
            if some:
                diloco_train.step(model, optimizer, scheduler, *self.data[torch.tensor(some)])
            else:
                scheduler.step()
        return model, optimizer, scheduler

    def step(self, shares, count):
        made = [self.member(share, count) for share in shares]
        weights = [len(share) / sum(map(len, shares)) for share in shares]
        for number, parameter in enumerate(self.model.parameters()):
            mean = sum(weight * list(model.parameters())[number].detach().double()
                       for weight, (model, _, _) in zip(weights, made))
            parameter.grad = (parameter.detach().double() - mean).float()
        self.outer.step()
        # The inner optimizer goes on with the mean of what it was at the members.
        kept = [tensors_of(optimizer) for _, optimizer, _ in made]
        means = [sum(weight * one.double() for weight, one in zip(weights, same)) for same in zip(*kept)]
        _, optimizer, scheduler = made[0]
        own = [one for group in optimizer.param_groups for one in group["params"]]
        self.inner = optimizer, scheduler
        for tensor, mean in zip(tensors_of(optimizer), means):
            tensor.copy_(mean)
        for parameter, value in zip(own, self.model.parameters()):
            parameter.data.copy_(value.detach())
        self.model = made[0][0]
        momentum = [self.outer.state[one]["momentum_buffer"] for one in self.outer.param_groups[0]["params"]]
        self.outer = torch.optim.SGD(self.model.parameters(), **diloco_train.OUTER)
        for parameter, buffer in zip(self.model.parameters(), momentum):
            self.outer.state[parameter]["momentum_buffer"] = buffer


def main():
    audit, result, epochs = sys.argv[1:]
    simulation = Simulation(int(epochs))
    used = collections.Counter()
    left = []
    for ids, step in zip(list(steps_of(audit)), json.load(sys.stdin), strict=True):
        work = left + ids
        shares = [work[slice(*made)] for made in step["made"]]
        taken = [at for made in step["made"] for at in range(*made)]
        left = [work[at] for at in range(len(work)) if at not in taken]
        if left and not step["finishes"]:
            sys.exit(f"{len(left)} samples were passed over in a step that nobody has interrupted")
        used.update(work[at] for at in taken)
        if shares:
            simulation.step(shares, -(-len(ids) // diloco_train.BATCH))
    found = read_safetensors(result)
    expected = simulation.model.state_dict()
    print(json.dumps({"distance": max((found[name] - expected[name]).abs().max().item() for name in expected),
                      "used": sorted({used[one] for one in range(diloco_train.SAMPLES)}), "left": len(left)}))


if __name__ == "__main__":
    main()
