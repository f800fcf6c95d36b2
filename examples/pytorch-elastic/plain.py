# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits by plain PyTorch in one process, in the form of PyTorch's own MNIST example; nothing of
Starling. docs/how-to/pytorch.md adds the three lines that make it elastic.
"""
import argparse
import csv
import os

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3)
        self.conv2 = nn.Conv2d(16, 32, 3)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(128, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = torch.flatten(F.max_pool2d(x, 2), 1)
        x = F.relu(self.fc1(self.dropout(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def read(path):
    with open(path, encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    table = torch.tensor([[float(cell) for cell in row] for row in rows])
    return TensorDataset(table[:, :-1].view(-1, 1, 8, 8) / 16, table[:, -1].long())


def train(args, model, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(f"Train Epoch: {epoch} Batch: {batch_idx}\tLoss: {loss.item():.6f}", flush=True)


def test(model, test_loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            correct += model(data).argmax(dim=1).eq(target).sum().item()
    print(f"Test set: Accuracy: {correct}/{len(test_loader.dataset)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.path.dirname(os.path.abspath(__file__)),
                        help="folder of digits-train.csv and digits-test.csv")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_loader = DataLoader(read(os.path.join(args.data, "digits-train.csv")), args.batch_size, shuffle=True)
    test_loader = DataLoader(read(os.path.join(args.data, "digits-test.csv")), 1000)
    model = Net()
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)

    for epoch in range(args.epochs):
        train(args, model, train_loader, optimizer, epoch)
        test(model, test_loader)
        scheduler.step()


if __name__ == "__main__":
    main()
