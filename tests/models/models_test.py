# SPDX-License-Identifier: Apache-2.0
"""Networks that a job file describes: as PyTorch computes them, step by step, and how well they learn.

Both sides begin with the same weights, which PyTorch drew, and see the same samples in the same
order. The controls leave out what the comparison is about, and are far from it.
"""
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

# One thread, and the kernels that workers choose: sums in another order are another rounding, which
# batch normalization of few values makes a hundred times larger each step.
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPOSITORY, "bench"))
from harness import core_type  # noqa: E402  (the path must come first)

os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
if core_type():
    os.environ["OPENBLAS_CORETYPE"] = core_type()
try:
    import torch
    from torch import nn
    import networks
    torch.set_num_threads(1)
except ImportError:
    print("skipped: Python has no torch here")
    sys.exit(77)

BIN = os.environ.get("STARLING_BIN", os.path.join(REPOSITORY, "build/release/bin"))
STEPS = 20
SAMPLES = 32
BATCH = 16
CLASSES = 10
NEAR = 1e-4
RATE = 0.001



def save(tensors, path):
    """As safetensors, sorted by name."""
    header, at = {}, 0
    for name, tensor in sorted(tensors.items()):
        size = tensor.numel() * 4
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in sorted(tensors.items()):
            file.write(tensor.detach().contiguous().numpy().tobytes())


class Models(unittest.TestCase):
    rate = RATE

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="starling-models-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def steps(self, spec, steps):
        """What training-steps prints: (loss, samples) of each step, and the validation's means."""
        job = {"apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob",
               "metadata": {"name": "models"}, "spec": spec}
        with open(self.path("job.json"), "w", encoding="utf-8") as file:
            json.dump(job, file)
        done = subprocess.run([os.path.join(BIN, "training-steps"), self.path("job.json"),
                               str(steps)], capture_output=True, text=True, check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        lines = [line.split() for line in done.stdout.splitlines()]
        made = [(float(loss), [int(i) for i in ids.split(",")])
                for number, loss, ids in lines if number != "validation"]
        return made, next(([float(mean) for mean in line[1:]] for line in lines
                           if line[0] == "validation"), None)

    def data(self, shape):
        """Images that both sides read alike, and their classes."""
        torch.manual_seed(5)
        images = torch.randn(SAMPLES, *shape)
        labels = torch.arange(SAMPLES) % CLASSES
        with open(self.path("data.csv"), "w", encoding="utf-8") as file:
            for image, label in zip(images, labels):
                cells = [format(value, ".9g") for value in image.flatten().tolist()]
                file.write(",".join(cells) + f",{label}\n")
        return images, labels

    def spec(self, model, shape, **classification):
        return {"seed": 3, "workload": {"classification": {"model": model, **classification}},
                "dataset": {"train": {"csv": {"uri": self.path("data.csv"), "header": "Absent",
                                              "shape": list(shape), "classes": CLASSES}},
                            "globalBatchSize": BATCH, "normalize": False},
                "optimizer": {"sgd": {"learningRate": self.rate, "momentum": 0.9}},
                "checkpoint": {"uri": self.folder}}

    def compare(self, model, network, shape=(3, 32, 32), steps=STEPS, loss=None, clip=None,
                **classification):
        """The largest distance of the losses, relative to PyTorch's."""
        images, labels = self.data(shape)
        torch.manual_seed(7)
        network = network()
        network.train()
        save({name: tensor for name, tensor in network.state_dict().items()
              if tensor.dtype == torch.float32}, self.path("first.safetensors"))
        spec = self.spec(model, shape, initialModel={"uri": self.path("first.safetensors")},
                         **classification)
        if clip:
            spec["optimizer"]["clipNorm"] = clip
        ours, _ = self.steps(spec, steps)
        self.assertEqual(steps, len(ours))
        optimizer = torch.optim.SGD(network.parameters(), lr=self.rate, momentum=0.9)
        loss = loss or nn.CrossEntropyLoss()
        distances = []
        for mine, ids in ours:
            optimizer.zero_grad()
            theirs = loss(network(images[ids]), labels[ids])
            theirs.backward()
            if clip:
                nn.utils.clip_grad_norm_(network.parameters(), clip)
            optimizer.step()
            distances.append(abs(mine - theirs.item()) / theirs.item())
        print(f"{model}: losses {ours[0][0]:.6f} to {ours[-1][0]:.6f}, largest distance "
              f"{max(distances):.1e}", flush=True)
        self.assertNotEqual(ours[0][0], ours[-1][0])
        return max(distances)


class ResNet18(Models):
    # Batch normalization of few values makes rounding grow with each step: at 0.001 from 1e-8 at the
    # first loss to 4e-3 at the twentieth.
    rate = 0.0002

    def test_its_losses_are_pytorchs_step_by_step(self):
        self.assertLess(self.compare({"resnet18": {}}, lambda: networks.ResNet18(CLASSES)), NEAR)

    def test_another_network_is_far_from_it(self):
        class Frozen(networks.ResNet18):
            """Normalizes by the running means, as nobody does in training."""

            def train(self, mode=True):
                return super().train(False)

        self.assertGreater(self.compare({"resnet18": {}}, lambda: Frozen(CLASSES), steps=3),
                           100 * NEAR)


class Vgg11(Models):
    """Of whose steps each takes seconds, and which has no layer that another network here has not:
    the fifth stands on momentum as the twentieth does, which `make prove` plays."""
    steps_made = int(os.environ.get("STARLING_VGG11_STEPS", "5"))

    def test_its_losses_are_pytorchs_step_by_step(self):
        self.assertLess(self.compare({"vgg11": {"dropout": 0}}, lambda: networks.Vgg11(CLASSES, 0),
                                     steps=self.steps_made), NEAR)


class Layered(nn.Module):
    """`modules` by the names that layers have; what has no tensors may stand anywhere."""

    def __init__(self, *modules):
        super().__init__()
        self.layers = nn.Sequential(*modules)

    def forward(self, x):
        return self.layers(x)


class Last(nn.Module):
    """What an LSTM gives at the last place."""

    def __init__(self, inputs, units):
        super().__init__()
        self.lstm = nn.LSTM(inputs, units, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0][:, -1]


class Attention(nn.MultiheadAttention):
    def forward(self, x):  # pylint: disable=arguments-differ
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return super().forward(x, x, x, attn_mask=mask, need_weights=False)[0]


class Block(nn.TransformerEncoderLayer):
    def __init__(self, width, heads, hidden):
        super().__init__(width, heads, hidden, dropout=0, activation="gelu", batch_first=True,
                         norm_first=True)

    def forward(self, x):  # pylint: disable=arguments-differ
        return super().forward(x, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1))


class Positions(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(length, width))

    def forward(self, x):
        return x + self.weight


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


class Layers(Models):
    def check(self, layers, *modules, **how):
        for layer, module in zip(layers, modules):
            if isinstance(module, Last):
                layer["name"] = f"layers.{layers.index(layer)}.lstm"
        self.assertLess(
            self.compare({"layers": layers}, lambda: Layered(*modules), **how), NEAR)

    def test_images(self):
        self.check([{"convolution": {"channels": 8, "kernel": 3, "stride": 2, "padding": 1}},
                    {"groupNorm": {"groups": 4}}, {"gelu": {}},
                    {"convolution": {"channels": 8, "kernel": 3, "groups": 8, "bias": False}},
                    {"batchNorm": {}}, {"sigmoid": {}}, {"averagePool": {"kernel": 2}},
                    {"adaptiveAveragePool": {"size": 2}}, {"flatten": {}}, {"dense": {}}],
                   nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(4, 8), nn.GELU(),
                   nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.BatchNorm2d(8), nn.Sigmoid(),
                   nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, CLASSES))

    def test_sequences(self):
        self.check([{"attention": {"heads": 2, "causal": True}}, {"layerNorm": {}},
                    {"dense": {"units": 8}}, {"tanh": {}}, {"lstm": {"units": 6}}, {"dense": {}}],
                   Attention(4, 2, batch_first=True), nn.LayerNorm(4), nn.Linear(4, 8), nn.Tanh(),
                   Last(8, 6), nn.Linear(6, CLASSES), shape=(7, 4))

    def transformer(self, **block):
        return [{"positions": {}}, {"transformerBlock": {"heads": 2, "hidden": 12, **block}},
                {"globalAveragePool": {}}, {"dense": {}}]

    def test_transformers(self):
        self.check(self.transformer(causal=True, dropout=0), Positions(7, 4), Block(4, 2, 12),
                   Mean(), nn.Linear(4, CLASSES), shape=(7, 4))

    def test_a_transformer_that_sees_what_comes_later_is_far_from_it(self):
        distance = self.compare(
            {"layers": self.transformer(dropout=0)},
            lambda: Layered(Positions(7, 4), Block(4, 2, 12), Mean(), nn.Linear(4, CLASSES)),
            shape=(7, 4), steps=3)
        self.assertGreater(distance, 100 * NEAR)

    def test_loss_with_weights_smoothed_labels_and_clipped_gradients(self):
        weights = [1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 1.0, 0.0, 1.0, 1.0]

        def loss(logits, labels):
            summed = nn.functional.cross_entropy(logits, labels, torch.tensor(weights),
                                                 reduction="sum", label_smoothing=0.1)
            return summed / len(labels)

        self.check([{"dense": {"units": 32}}, {"relu": {}}, {"dense": {}}], nn.Linear(20, 32),
                   nn.ReLU(), nn.Linear(32, CLASSES), shape=(20,), loss=loss, clip=0.5,
                   classWeights=weights, labelSmoothing=0.1)

    def digits(self, seed):
        """Of the example, without its stop at the best validation."""
        sources = [{"csv": {"uri": os.path.join(REPOSITORY, "examples/data", name),
                            "labelColumn": "label", "shape": [1, 8, 8]}}
                   for name in ("digits-train.csv", "digits-test.csv")]
        layers = [{"convolution": {"channels": 32, "kernel": 3, "padding": 1}}, {"batchNorm": {}},
                  {"relu": {}},
                  {"residual": {"layers": [
                      {"convolution": {"channels": 32, "kernel": 3, "padding": 1}},
                      {"batchNorm": {}}, {"relu": {}}]}},
                  {"maxPool": {"kernel": 2}}, {"flatten": {}}, {"dropout": {"rate": 0.4}},
                  {"dense": {"units": 96}}, {"relu": {}}, {"dense": {}}]
        _, (_, accuracy) = self.steps({
            "seed": seed, "workload": {"classification": {"model": {"layers": layers}}},
            "dataset": {"train": sources[0], "validation": sources[1], "globalBatchSize": 64},
            "optimizer": {"adam": {"learningRate": 0.002}, "clipNorm": 5,
                          "schedule": {"cosine": {"steps": 345, "minimum": 0.02}}},
            "checkpoint": {"uri": self.folder}}, 345)
        return accuracy

    def test_digits_reach_98_percent_over_five_seeds(self):
        reached = [self.digits(seed) for seed in (1, 2, 3, 4, 5)]
        print(f"digits: {reached}", flush=True)
        self.assertGreaterEqual(sum(reached) / len(reached), 0.98)


class Rebuilder(nn.Module):
    """The named network autoencoder, 6 -> 5 -> 2 -> 5 -> 6."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.ModuleList([nn.Linear(6, 5), nn.Linear(5, 2)])
        self.decoder = nn.ModuleList([nn.Linear(2, 5), nn.Linear(5, 6)])

    def forward(self, x):
        code = self.encoder[1](self.encoder[0](x).relu())
        return self.decoder[1](self.decoder[0](code).relu())


class Numbers(Models):
    """Networks that give numbers, two columns of them or the sample itself."""
    rate = 0.05
    REGRESSION = {"layers": [{"dense": {"units": 8}}, {"tanh": {}}, {"dense": {}}]}
    AUTOENCODER = {"autoencoder": {"hidden": [5, 2]}}

    @staticmethod
    def regressor():
        return Layered(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))

    def distance(self, kind, model, network, criterion, steps=STEPS, features=torch.randn, dataset=None,
                 **workload):
        """As `compare`: the largest distance of the losses, relative to PyTorch's."""
        torch.manual_seed(5)
        samples, wanted = features(SAMPLES, 6), 2 * torch.randn(SAMPLES, 2)
        with open(self.path("data.csv"), "w", encoding="utf-8") as file:
            for row in torch.cat([samples, wanted], 1).tolist():
                file.write(",".join(format(value, ".9g") for value in row) + "\n")
        if kind == "autoencoder":
            wanted = samples
        torch.manual_seed(7)
        network = network()
        save(network.state_dict(), self.path("first.safetensors"))
        spec = self.spec(model, (6,))
        spec["workload"] = {kind: {"model": model, **workload,
                                   "initialModel": {"uri": self.path("first.safetensors")}}}
        spec["dataset"]["train"] = {"csv": {"uri": self.path("data.csv"), "header": "Absent",
                                            "labelColumns": ["6", "7"]}}
        spec["dataset"].update(dataset or {})
        ours, _ = self.steps(spec, steps)
        self.assertEqual(steps, len(ours))
        optimizer = torch.optim.SGD(network.parameters(), lr=self.rate, momentum=0.9)
        distances = []
        for mine, ids in ours:
            optimizer.zero_grad()
            theirs = criterion(network(samples[ids]), wanted[ids])
            theirs.backward()
            optimizer.step()
            distances.append(abs(mine - theirs.item()) / theirs.item())
        print(f"{kind} {workload} {dataset or ''}: losses {ours[0][0]:.6f} to {ours[-1][0]:.6f}, "
              f"largest distance {max(distances):.1e}", flush=True)
        self.assertNotEqual(ours[-1][0], ours[0][0])
        return max(distances)

    def test_regressions_losses_are_pytorchs_step_by_step(self):
        for name, loss in (("SquaredError", nn.MSELoss()), ("Huber", nn.HuberLoss()),
                           ("AbsoluteError", nn.L1Loss())):
            with self.subTest(loss=name):
                self.assertLess(self.distance("regression", self.REGRESSION, self.regressor, loss,
                                              loss=name), NEAR)

    def test_another_loss_is_far_from_it(self):
        self.assertGreater(self.distance("regression", self.REGRESSION, self.regressor,
                                         nn.HuberLoss(), steps=3), 100 * NEAR)

    def test_autoencoders_losses_are_pytorchs_step_by_step(self):
        self.assertLess(self.distance("autoencoder", self.AUTOENCODER, Rebuilder, nn.MSELoss()),
                        NEAR)
        self.assertLess(self.distance("autoencoder", self.AUTOENCODER, Rebuilder,
                                      nn.BCEWithLogitsLoss(), features=torch.rand,
                                      loss="BinaryCrossEntropy"), NEAR)

    def test_an_autoencoder_whose_code_is_cut_off_at_zero_is_far_from_it(self):
        class Cut(Rebuilder):
            def forward(self, x):
                code = self.encoder[1](self.encoder[0](x).relu()).relu()
                return self.decoder[1](self.decoder[0](code).relu())

        self.assertGreater(self.distance("autoencoder", self.AUTOENCODER, Cut, nn.MSELoss(),
                                         steps=10), 10 * NEAR)

    def test_a_batch_in_parts_has_the_losses_of_the_whole(self):
        for part in (1, 5, 7):
            self.assertLess(self.distance("regression", self.REGRESSION, self.regressor,
                                          nn.MSELoss(), dataset={"microBatchSize": part}), NEAR)


class Memory(Models):
    """What a batch in parts is for."""

    def peak(self, **dataset):
        """MiB of the process that makes two steps of 64 images through six convolutions."""
        spec = {"seed": 3, "workload": {"classification": {"model": {"layers": [
            *({"convolution": {"channels": 32, "kernel": 3, "padding": 1}} for _ in range(6)),
            {"globalAveragePool": {}}, {"dense": {}}]}}},
            "dataset": {"train": {"synthetic": {"samples": 128, "shape": [3, 64, 64]}},
                        "globalBatchSize": 64, **dataset}, "checkpoint": {"uri": self.folder}}
        job = {"apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob",
               "metadata": {"name": "models"}, "spec": spec}
        with open(self.path("job.json"), "w", encoding="utf-8") as file:
            json.dump(job, file)
        command = [os.path.join(BIN, "training-steps"), self.path("job.json"), "2"]
        pid = os.spawnv(os.P_NOWAIT, command[0], command)
        _, status, used = os.wait4(pid, 0)
        self.assertEqual(0, status)
        return used.ru_maxrss / 1024

    def test_a_batch_in_parts_needs_a_part_of_the_memory(self):
        nothing = self.peak(globalBatchSize=1)
        whole, parts = self.peak() - nothing, self.peak(microBatchSize=8) - nothing
        print(f"memory of a batch of 64: {whole:.0f} MiB, in parts of 8: {parts:.0f} MiB", flush=True)
        self.assertLess(parts, whole / 3)


CONTEXT = 64
TEXT = os.path.join(REPOSITORY, "examples/data/shakespeare.txt")


class Transformer(Models):
    """A language model of a real text, with PyTorch's parts in PyTorch's order."""
    steps_made = 300
    batch = 16
    blocks, width, heads = 2, 64, 4

    def text(self):
        """(given, wanted) of the samples of the first nine tenths, and of the rest."""
        with open(TEXT, encoding="ascii") as file:
            text = file.read()
        known = sorted(set(text))
        numbers = torch.tensor([known.index(symbol) for symbol in text])
        cut = int(0.9 * len(text))
        parts = []
        for part in (numbers[:cut], numbers[cut:]):
            samples = (len(part) - 1) // CONTEXT
            parts.append((part[:samples * CONTEXT].view(samples, CONTEXT),
                          part[1:samples * CONTEXT + 1].view(samples, CONTEXT)))
        return len(known), parts[0], parts[1]

    def job(self, dropout, optimizer, **language):
        def source(**part):
            return {"text": {"uri": TEXT, **part}}
        return {"seed": 3, "workload": {"languageModel": {
            "model": {"transformer": {"blocks": self.blocks, "width": self.width,
                                      "heads": self.heads, "dropout": dropout}},
            "contextLength": CONTEXT, **language}},
            "dataset": {"train": source(end=0.9), "validation": source(begin=0.9),
                        "globalBatchSize": self.batch},
            "optimizer": optimizer, "checkpoint": {"uri": self.folder}}

    def network(self, symbols, dropout):
        torch.manual_seed(7)
        return networks.Transformer(symbols, CONTEXT, self.blocks, self.width, self.heads, dropout)

    @staticmethod
    def loss(network, given, wanted):
        return nn.functional.cross_entropy(network(given).flatten(0, 1), wanted.flatten())

    def train(self, network, optimizer, steps, train):
        """PyTorch's losses, one for each of the steps that ours made."""
        losses = []
        for _, ids in steps:
            optimizer.zero_grad()
            loss = self.loss(network, train[0][ids], train[1][ids])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def test_its_losses_are_pytorchs_step_by_step(self):
        symbols, train, _ = self.text()
        network = self.network(symbols, 0)
        save(network.state_dict(), self.path("first.safetensors"))
        ours, _ = self.steps(self.job(0, {"sgd": {"learningRate": 0.1, "momentum": 0.9}},
                                      initialModel={"uri": self.path("first.safetensors")}), STEPS)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        theirs = self.train(network, optimizer, ours, train)
        distance = max(abs(mine - their) / their for (mine, _), their in zip(ours, theirs))
        print(f"transformer: losses {theirs[0]:.4f} to {theirs[-1]:.4f}, largest distance "
              f"{distance:.1e}", flush=True)
        self.assertLess(theirs[-1], theirs[0])
        self.assertLess(distance, NEAR)

    def judged(self, network, validation):
        network.eval()
        with torch.no_grad():
            return self.loss(network, *validation).item()

    def test_what_it_learns_of_a_text_is_what_pytorch_does(self):
        """From the same weights; each leaves out other values."""
        symbols, train, validation = self.text()
        network = self.network(symbols, 0.1)
        save(network.state_dict(), self.path("first.safetensors"))
        ours, (loss, perplexity) = self.steps(
            self.job(0.1, {"adam": {"learningRate": 0.002}},
                     initialModel={"uri": self.path("first.safetensors")}), self.steps_made)
        before = self.judged(network, validation)
        network.train()
        self.train(network, torch.optim.Adam(network.parameters(), lr=0.002), ours, train)
        theirs = self.judged(network, validation)
        print(f"transformer: validation loss {loss:.4f}, PyTorch's {theirs:.4f} after "
              f"{self.steps_made} steps, {before:.4f} before", flush=True)
        self.assertAlmostEqual(perplexity, math.exp(loss), delta=1e-4 * perplexity)
        self.assertLess(abs(loss - theirs) / theirs, 0.01)
        self.assertGreater(abs(before - theirs) / theirs, 0.2, "nothing was learnt")


if __name__ == "__main__":
    unittest.main()
