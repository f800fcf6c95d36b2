# SPDX-License-Identifier: Apache-2.0
"""A program of tests: gradients scaled by a GradScaler; in each epoch one sample's are infinite. Says at
its end what the scale is, and how many steps the optimizer has made. From step 14 on it is slow until
there are three members."""
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

import starling.torch as starling
from say import say

SAMPLES, BATCH, EPOCHS = 300, 30, 3
INFINITE = 250  # the sample; in the data's own order it is one of an epoch's 9th step


def main():
    torch.manual_seed(3)
    points = torch.randn(SAMPLES, 8)
    data = TensorDataset(points, (points[:, 0] > 0).long(), torch.arange(SAMPLES))
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4)
    loader = starling.elastic(DataLoader(data, BATCH), model, optimizer, scaler=scaler)
    for _ in loader.epochs(EPOCHS):
        for inputs, labels, indices in loader:
            if loader.step > 13 and loader._step.members < 3:
                time.sleep(2)
            optimizer.zero_grad()
            losses = torch.nn.functional.cross_entropy(model(inputs), labels, reduction="none")
            loss = (losses * torch.where(indices == INFINITE, float("inf"), 1.0)).mean()
            loader.log(loss=0)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    made = {int(kept["step"]) for kept in optimizer.state.values()}
    say(scale=scaler.get_scale(), made=sorted(made))


if __name__ == "__main__":
    main()
