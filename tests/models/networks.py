# SPDX-License-Identifier: Apache-2.0
"""Networks in plain PyTorch: alexnet, vgg11, vgg16 and resnet18 with the names of torchvision, which
Debian does not have, and a transformer of PyTorch's own modules."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or inputs != channels:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False),
                                            nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet18(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs = 64
        for stage, channels in enumerate((64, 128, 256, 512)):
            stride = 1 if stage == 0 else 2
            setattr(self, f"layer{stage + 1}", nn.Sequential(
                Block(inputs, channels, stride), Block(channels, channels, 1)))
            inputs = channels
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class AlexNet(nn.Module):
    def __init__(self, classes, dropout=0.5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(),
            nn.Dropout(dropout), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, classes))

    def forward(self, x):
        return self.classifier(nn.functional.adaptive_avg_pool2d(self.features(x), 6).flatten(1))


class Vgg(nn.Module):
    """`channels` of its convolutions; 0 is a pooling."""

    def __init__(self, channels, classes, dropout):
        super().__init__()
        layers, inputs = [], 3
        for outputs in channels:
            if outputs:
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
                inputs = outputs
            else:
                layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(dropout), nn.Linear(4096, classes))

    def forward(self, x):
        return self.classifier(nn.functional.adaptive_avg_pool2d(self.features(x), 7).flatten(1))


class Vgg11(Vgg):
    def __init__(self, classes, dropout=0.5):
        super().__init__((64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0), classes, dropout)


class Vgg16(Vgg):
    def __init__(self, classes, dropout=0.5):
        super().__init__((64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0,
                          512, 512, 512, 0), classes, dropout)


class Transformer(nn.Module):
    """Predicts each next symbol; ours by other kernels where attention is concerned."""

    def __init__(self, symbols, context, blocks, width, heads, dropout):
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, "gelu", batch_first=True,
                                       norm_first=True) for _ in range(blocks))
        for block in self.blocks:
            block.self_attn.dropout = 0.0  # of the weights of places: ours has none
            block.dropout = nn.Identity()  # between the dense layers: likewise
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols)

    def forward(self, numbers):
        later = torch.ones(numbers.shape[1], numbers.shape[1], dtype=torch.bool).triu(1)
        x = self.dropout(self.embedding(numbers) + self.positions.weight)
        for block in self.blocks:
            x = block(x, later)
        return self.head(self.norm(x))
