# SPDX-License-Identifier: Apache-2.0
"""A program of tests: what the example has not. BatchNorm, dropout, a head that nobody uses, a layer that
stays, a loader in the data's own order, a scheduler stepped once an epoch, metrics of its own; with
--blur samples that are others each time they are read, and with --members slow steps until there are so
many."""
import argparse
import time

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import starling.torch as starling


class Points(Dataset):
    """So many points of two classes; each notes for whom it was read."""

    def __init__(self, blur):
        self.blur = blur

    def __len__(self):
        return 300

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        point = torch.randn(8, generator=generator)
        label = (point[0] > 0).long()
        return point + self.blur * torch.randn(8) if self.blur else point, label, index


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.fixed = torch.nn.Linear(8, 8)
        self.fixed.requires_grad_(False)
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(),
                                        torch.nn.Dropout(0.1), torch.nn.Linear(32, 2))
        self.unused = torch.nn.Linear(4, 4)

    def forward(self, inputs):
        return self.body(self.fixed(inputs))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=30)
    parser.add_argument("--members", type=int, default=0)
    parser.add_argument("--blur", type=float, default=0)
    parser.add_argument("--readers", type=int, default=0)
    options = parser.parse_args()
    model = Model()
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.05,
                                momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5 ** epoch)
    loader = DataLoader(Points(options.blur), options.batch, num_workers=options.readers)
    steps = len(loader)
    loader = starling.elastic(loader, model, optimizer, scheduler, metrics=["accuracy"])
    before = model.unused.weight.clone()
    for epoch in loader.epochs(options.epochs):
        begun = 0
        for inputs, labels, indices in loader:
            # In the data's own order, each member a share of the next ones.
            first = (loader.step - 1) % steps * options.batch
            batch = range(first, first + options.batch)
            assert all(one in batch for one in indices.tolist()), (loader.step, indices)
            if loader.step > 3 and loader._step.members < options.members:
                time.sleep(0.5)
            optimizer.zero_grad(set_to_none=True)
            outputs = model(inputs)
            loss = functional.cross_entropy(outputs, labels)
            loader.log(loss=loss, accuracy=(outputs.argmax(dim=1) == labels).float().mean())
            loss.backward()
            optimizer.step()
            begun += loader.committed
        scheduler.step()
        print(f"epoch {epoch}: {begun} steps, rate {optimizer.param_groups[0]['lr']}", flush=True)
    assert torch.equal(before, model.unused.weight), "what has no gradient does not decay either"
    assert optimizer.param_groups[0]["lr"] == 0.05 * 0.5 ** options.epochs, optimizer.param_groups[0]


if __name__ == "__main__":
    main()
