# SPDX-License-Identifier: Apache-2.0
"""Exported models: onnxruntime gives for the same samples what `starling predict` and `evaluate` say.

A job of two steps makes each model file, so that it is as jobs write it. Then its tensors are drawn anew,
for right after the start all classes are nearly as likely, and wrong numbers would hardly show.
"""
import csv
import itertools
import json
import math
import os
import struct
import subprocess
import sys

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
try:
    import numpy
    import onnxruntime
except ImportError:
    if os.environ.get("STARLING_ONNXRUNTIME_TRIED"):
        raise
    made = subprocess.run([os.path.join(REPOSITORY, "cmake/setup/onnxruntime.sh")],
                          capture_output=True, text=True, check=False)
    if made.returncode != 0:
        print("skipped: cmake/setup/onnxruntime.sh cannot install onnxruntime here, so that no exported "
              f"model is compared with it:\n{made.stderr[-2000:]}")
        sys.exit(77)
    os.environ["STARLING_ONNXRUNTIME_TRIED"] = "1"
    os.execv(made.stdout.strip(), [made.stdout.strip(), "-B", *sys.argv])

import unittest  # noqa: E402

import jobs  # noqa: E402
from case import Case  # noqa: E402
from home import DATA  # noqa: E402
from images_test import write_digits  # noqa: E402

NEAR = 1e-5
CLASSES = 10
ROWS = 24


def load(path):
    """Tensors and metadata of a safetensors file."""
    with open(path, "rb") as file:
        content = file.read()
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:begin])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, about in header.items():
        first, last = (begin + at for at in about["data_offsets"])
        tensors[name] = numpy.frombuffer(content[first:last], "<f4").reshape(about["shape"])
    return tensors, metadata


def save(path, tensors, metadata):
    header, at = {"__metadata__": metadata}, 0
    for name in sorted(tensors):
        header[name] = {"dtype": "F32", "shape": list(tensors[name].shape),
                        "data_offsets": [at, at + tensors[name].nbytes]}
        at += tensors[name].nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            file.write(tensors[name].tobytes())


def drawn(tensors, seed=1):
    """Numbers of a size that keeps a signal alive, in each tensor other ones."""
    draw = numpy.random.default_rng(seed)
    made = {}
    for name, old in sorted(tensors.items()):
        if name.endswith("running_var"):
            new = draw.uniform(0.5, 2, old.shape)
        elif old.ndim == 1 and name.endswith("weight"):
            new = draw.uniform(0.5, 1.5, old.shape)
        elif old.ndim == 1:
            new = draw.normal(0, 0.2, old.shape)
        else:
            new = draw.standard_normal(old.shape, numpy.float32)
            new *= math.sqrt(2 / (old.size / old.shape[0]))
        made[name] = new.astype("<f4")
    return made


class OnnxCase(Case):
    def setUp(self):
        super().setUp()
        self.model = os.path.join(self.home.folder, "model.safetensors")
        self.exported = os.path.join(self.home.folder, "model.onnx")

    def train(self, workload, train, seed=1, **dataset):
        """Leaves a model file of such a job, with tensors of its own, as self.model."""
        job = jobs.digits("short", 1, workload=workload, dataset={
            "train": train, "globalBatchSize": 8, **dataset},
            stop={"epochs": 1, "steps": 2}, experiment__stepDelay="0s")
        uri = self.result(self.run_job(job, timeout=300))["model"]["uri"]
        tensors, metadata = load(uri.removeprefix("file://"))
        self.tensors, self.metadata = drawn(tensors, seed), metadata
        save(self.model, self.tensors, metadata)

    def export(self):
        self.home.run("export", "--model", self.model, "--output", self.exported)
        self.assertEqual([], [name for name in os.listdir(self.home.folder) if name == ".tmp"])

    def compute(self, samples, path=None):
        """The graph's outputs by name, of all samples at once; one at a time they are the same."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path or self.exported, options,
                                               providers=["CPUExecutionProvider"])
        self.assertEqual(["input"], [one.name for one in session.get_inputs()])
        names = [one.name for one in session.get_outputs()]
        whole = session.run(names, {"input": samples})
        alone = session.run(names, {"input": samples[:1]})
        for all_of, one in zip(whole, alone):
            numpy.testing.assert_allclose(all_of[:1], one, NEAR, NEAR)
        self.told = session.get_modelmeta().custom_metadata_map
        return dict(zip(names, whole))

    def table(self, samples, labels=None):
        """A table of them, with the classes as column label where there are some."""
        rows = samples.reshape(len(samples), -1)
        names = [f"x{i}" for i in range(rows.shape[1])]
        if labels is not None:
            names.append("label")
        path = os.path.join(self.home.folder, "samples.csv")
        with open(path, "w", encoding="ascii") as file:
            file.write(",".join(names) + "\n")
            for i, row in enumerate(rows):
                cells = [format(float(value), ".9g") for value in row]
                file.write(",".join(cells + ([str(labels[i])] if labels is not None else [])) + "\n")
        return path

    def predict(self, data, *flags):
        rows = list(csv.reader(self.home.run("predict", "--model", self.model, "--data", data,
                                             *flags).stdout.splitlines()))
        return rows[1:]

    def evaluate(self, data, *flags):
        return json.loads(self.home.run("evaluate", "--model", self.model, "--data", data, "-o",
                                        "json", *flags).stdout)

    def widen(self, samples):
        """Makes the last layer so large that the classes differ: of logits near one another all
        probabilities are alike, whatever the network computes. There are CLASSES, and one tensor of
        so many rows."""
        self.export()
        spread = numpy.log(numpy.clip(self.compute(samples)["probabilities"], 1e-30, 1)).std()
        last, = (name for name, tensor in self.tensors.items()
                 if tensor.ndim == 2 and tensor.shape[0] == CLASSES)
        self.tensors[last] = (self.tensors[last] * (2 / spread)).astype("<f4")
        save(self.model, self.tensors, self.metadata)
        self.export()

    def distance(self, probabilities, table, labels):
        """The largest one between `probabilities` and what predict and evaluate say."""
        rows = self.predict(table, "--label-column", "label")
        if [str(best) for best in probabilities.argmax(1)] != [row[0] for row in rows]:
            return math.inf  # they take samples for other classes
        distance = numpy.abs(probabilities.max(1) -
                             numpy.array([float(row[1]) for row in rows])).max()
        own = -numpy.log(probabilities[numpy.arange(len(labels)), labels].astype("f8")).mean()
        said = self.evaluate(table)["loss"]
        return max(distance, abs(own - said) / max(1, said))

    def check_classes(self, model, shape, samples=None, train=None, rows=ROWS, **dataset):
        self.train({"classification": {"model": model}}, train or {
            "synthetic": {"samples": 16, "shape": list(shape), "classes": CLASSES}}, **dataset)
        if samples is None:
            samples = numpy.random.default_rng(2).normal(0.3, 1.5, (rows, *shape)).astype("f4")
        self.widen(samples)
        labels = [i % CLASSES for i in range(len(samples))]
        probabilities = self.compute(samples)["probabilities"]
        self.assertGreater(probabilities.std(), 0.03, "or anything would be near")
        distance = self.distance(probabilities, self.table(samples, labels), labels)
        self.say(f"{model}: probabilities and losses differ by {distance:.1e}")
        self.assertLess(distance, NEAR)


class Classes(OnnxCase):
    def test_mlp(self):
        self.check_classes({"mlp": {"hidden": [9, 7]}}, (2, 3))

    def test_linear(self):
        self.check_classes({"linear": {}}, (6,))

    def test_lenet5(self):
        self.check_classes({"lenet5": {}}, (1, 28, 28))

    def test_samples_that_are_not_scaled(self):
        self.check_classes({"mlp": {"hidden": [9]}}, (5,), normalize=False)
        self.assertNotIn("starling.normalization.mean", self.told)

    def test_layers_of_images(self):
        self.check_classes({"layers": [
            {"convolution": {"channels": 8, "kernel": 3, "stride": 2, "padding": 1}},
            {"groupNorm": {"groups": 4}}, {"gelu": {}},
            {"residual": {"layers": [
                {"convolution": {"channels": 8, "kernel": 3, "padding": 1, "groups": 8, "bias": False}},
                {"batchNorm": {}}, {"sigmoid": {}}]}},
            {"averagePool": {"kernel": 3, "stride": 2, "padding": 1}}, {"tanh": {}},
            {"residual": {"layers": [
                {"convolution": {"channels": 12, "kernel": 3, "stride": 2, "padding": 1}}],
                "projection": {"stride": 2}}},
            {"maxPool": {"kernel": 2, "stride": 1, "padding": 1}},
            {"adaptiveAveragePool": {"size": 3}}, {"dropout": {}}, {"flatten": {}},
            {"dense": {"units": 16}}, {"groupNorm": {"groups": 2}}, {"layerNorm": {}}, {"relu": {}},
            {"dense": {}}]}, (3, 17, 22))

    def test_layers_of_sequences(self):
        self.check_classes({"layers": [
            {"lstm": {"units": 6, "sequence": True}}, {"dense": {"units": 8}}, {"layerNorm": {}},
            {"attention": {"heads": 2, "causal": True}}, {"positions": {}},
            {"transformerBlock": {"heads": 4, "hidden": 12}},
            {"residual": {"layers": [{"lstm": {"units": 8, "sequence": True}}]}},
            {"lstm": {"units": 5}}, {"dense": {}}]}, (7, 4))

    def test_an_embedding_and_means_over_places(self):
        numbers = numpy.random.default_rng(3).integers(0, 9, (ROWS, 6))
        self.check_classes({"layers": [
            {"embedding": {"rows": 9, "width": 4}}, {"attention": {"heads": 2}},
            {"globalAveragePool": {}}, {"dense": {}}]}, (6,), samples=numbers, train={
                "csv": {"uri": self.table(numbers, [i % CLASSES for i in range(ROWS)])}},
            normalize=False)

    def test_images_of_a_folder_are_numbers_from_0_to_1(self):
        folder = os.path.join(self.home.folder, "images")
        write_digits(folder, "digits-train.csv", 60)
        self.train({"classification": {"model": {"layers": [
            {"convolution": {"channels": 4, "kernel": 3}}, {"relu": {}}, {"globalAveragePool": {}},
            {"dense": {}}]}}}, {"imageFolder": {"uri": folder, "shape": [1, 8, 8]}})
        with open(os.path.join(DATA, "digits-train.csv"), encoding="ascii") as table:
            rows = list(itertools.islice(csv.DictReader(table), 60))
        samples = {f"{row['label']}/{number}.png": numpy.array(
            [min(255, int(row[f"p{i}"]) * 16) for i in range(64)], "f4").reshape(1, 8, 8) / 255
            for number, row in enumerate(rows)}
        self.widen(numpy.stack(list(samples.values())))
        told = self.predict(folder)
        probabilities = self.compute(numpy.stack([samples[row[0]] for row in told]))["probabilities"]
        classes = self.told["starling.classNames"].split("/")
        self.assertEqual([classes[best] for best in probabilities.argmax(1)],
                         [row[1] for row in told])
        said = numpy.array([float(row[2]) for row in told])
        self.assertLess(numpy.abs(probabilities.max(1) - said).max(), NEAR)


class Bytes(OnnxCase):
    def test_weights_of_bytes_take_a_quarter_and_judge_as_the_model_does(self):
        uri = self.result(self.run_job(jobs.digits("bytes", 1, epochs=10,
                                                   experiment__stepDelay="0s")))["model"]["uri"]
        self.model = uri.removeprefix("file://")
        self.export()
        whole = os.path.getsize(self.exported)
        table = os.path.join(DATA, "digits-test.csv")
        rows = numpy.loadtxt(table, delimiter=",", skiprows=1, dtype="f4")
        with open(table, encoding="ascii") as file:
            label = file.readline().strip().split(",").index("label")
        samples, labels = numpy.delete(rows, label, 1).reshape(-1, 1, 8, 8), rows[:, label]
        floats = self.compute(samples)["probabilities"]
        self.home.run("export", "--model", self.model, "--output", self.exported, "--weights", "int8")
        self.assertLess(os.path.getsize(self.exported), 0.32 * whole)
        found = self.compute(samples)["probabilities"]
        right = [numpy.mean(one.argmax(1) == labels) for one in (floats, found)]
        off = numpy.abs(found - floats).max()
        self.say(f"right: {right[0]:.4f}, of bytes {right[1]:.4f}; probabilities differ by {off:.1e}")
        self.assertGreater(right[0], 0.9)
        self.assertGreater(right[1], right[0] - 0.005)
        self.assertGreater(off, NEAR, "or these are no bytes")

    def test_other_types_are_refused(self):
        told = self.home.run("export", "--model", self.model, "--output", self.exported, "--weights",
                             "int4", code=2).stderr
        self.assertIn("--weights int4: must be float32 or int8", told)


class Large(OnnxCase):
    def test_alexnet(self):
        self.check_classes({"alexnet": {}}, (3, 64, 64), rows=8)

    def test_vgg11(self):
        self.check_classes({"vgg11": {}}, (3, 32, 32), rows=8)

    def test_resnet18(self):
        self.check_classes({"resnet18": {}}, (3, 32, 32), rows=8)

    def test_resnet50(self):
        self.check_classes({"resnet50": {}}, (3, 32, 32), rows=8)


class Numbers(OnnxCase):
    def samples(self, columns=64):
        return numpy.random.default_rng(2).uniform(0, 1, (ROWS, columns)).astype("f4")

    def near(self, computed, rows):
        said = numpy.array([[float(cell) for cell in row] for row in rows])
        self.assertGreater(said.std(), 1e-3)
        distance = (numpy.abs(computed.reshape(said.shape) - said) / numpy.maximum(1, numpy.abs(said))).max()
        self.say(f"differ by {distance:.1e}")
        self.assertLess(distance, NEAR)

    def test_regression(self):
        columns = ["p27", "p28"]
        self.train({"regression": {"model": {"mlp": {"hidden": [9]}}}}, {"csv": {
            "uri": os.path.join(DATA, "digits-train.csv"), "labelColumns": columns}})
        self.export()
        samples = 16 * self.samples(63)  # the label is a feature here
        computed = self.compute(samples)["predictions"]
        self.near(computed, self.predict(self.table(samples)))
        self.assertEqual(columns, json.loads(self.told["starling.outputNames"]))

    def check_autoencoder(self, model, shape, **workload):
        self.train({"autoencoder": {"model": model, **workload}}, {"synthetic": {
            "samples": 16, "shape": shape}} if not workload else {
                "csv": {"uri": self.table(self.samples()), "shape": shape}},
            normalize=not workload)
        self.export()
        samples = self.samples()
        computed = self.compute(samples.reshape(ROWS, *shape))
        self.assertEqual((ROWS, *shape), computed["reconstruction"].shape)
        self.near(computed["error"], self.predict(self.table(samples)))
        if workload:
            self.assertTrue(((computed["reconstruction"] > 0) & (computed["reconstruction"] < 1)).all())

    def test_autoencoder(self):
        self.check_autoencoder({"autoencoder": {"hidden": [16, 4]}}, [1, 8, 8])

    def test_autoencoder_by_cross_entropy(self):
        self.check_autoencoder({"layers": [{"flatten": {}}, {"dense": {"units": 5}}, {"relu": {}},
                                           {"dense": {"units": 64}}]}, [8, 8],
                               loss="BinaryCrossEntropy")


class Text(OnnxCase):
    CONTEXT = 16

    def test_a_transformer_scores_and_writes_on(self):
        text = os.path.join(DATA, "shakespeare.txt")
        self.train({"languageModel": {
            "model": {"transformer": {"blocks": 2, "width": 32, "heads": 4}},
            "contextLength": self.CONTEXT}}, {"text": {"uri": text}})
        self.export()
        with open(text, encoding="ascii") as file:
            part = file.read(40 * self.CONTEXT + 1)
        self.compute(numpy.zeros((2, self.CONTEXT), "i8"))
        alphabet = [chr(int(code)) for code in self.told["starling.alphabet"].split(",")]
        numbers = numpy.array([alphabet.index(symbol) for symbol in part])
        given = numbers[:-1].reshape(-1, self.CONTEXT)
        wanted = numbers[1:]
        scores = self.compute(given)["scores"].reshape(-1, len(alphabet)).astype("f8")
        losses = numpy.log(numpy.exp(scores).sum(1)) - scores[numpy.arange(len(wanted)), wanted]
        said = self.evaluate(self.home.write("part.txt", part))["loss"]
        self.say(f"losses differ by {abs(losses.mean() - said):.1e} of {said:.3f}")
        self.assertLess(abs(losses.mean() - said) / said, NEAR)
        self.assertGreater(losses.std(), 0.1)
        written = self.home.run("predict", "--model", self.model, "--prompt", "ROMEO:",
                                "--temperature", "0", "--symbols", "30").stdout
        self.assertEqual(written, self.written("ROMEO:", 30, alphabet) + "\n")

    def written(self, text, symbols, alphabet):
        """As `starling predict --temperature 0` does."""
        for _ in range(symbols):
            seen = [alphabet.index(symbol) for symbol in text[-self.CONTEXT:]]
            given = numpy.array([seen + [0] * (self.CONTEXT - len(seen))])
            scores = self.compute(given)["scores"][0, len(seen) - 1]
            text += alphabet[scores.argmax()]
        return text


class Wrong(OnnxCase):
    def test_one_weight_that_is_another_is_noticed(self):
        self.train({"classification": {"model": {"mlp": {"hidden": [9]}}}}, {
            "synthetic": {"samples": 16, "shape": [6], "classes": CLASSES}})
        samples = numpy.random.default_rng(2).normal(0.3, 1.5, (ROWS, 6)).astype("f4")
        self.widen(samples)
        labels = [i % CLASSES for i in range(ROWS)]
        table = self.table(samples, labels)
        self.assertLess(self.distance(self.compute(samples)["probabilities"], table, labels), NEAR)
        with open(self.exported, "rb") as file:
            content = file.read()
        weight = next(tensor for name, tensor in sorted(self.tensors.items()) if tensor.ndim == 2)
        self.assertEqual(1, content.count(weight.tobytes()))
        other = weight.copy()
        other[0, 0] += 0.01
        broken = self.home.write("broken.onnx", content.replace(weight.tobytes(), other.tobytes()))
        distance = self.distance(self.compute(samples, broken)["probabilities"], table, labels)
        self.say(f"with one weight changed by 0.01 they differ by {distance:.1e}")
        self.assertGreater(distance, 10 * NEAR)

    def test_what_cannot_be_exported_is_refused_by_name(self):
        save(self.model, {"weight": numpy.zeros(4, "<f4")}, {"format": "pt"})

        def refused(*flags):
            return self.home.run("export", *flags, code=2).stderr

        self.assertIn("(linear and sparse regressions are none",
                      refused("--model", self.model, "--output", self.exported))
        self.assertFalse(os.path.exists(self.exported))
        self.assertIn("--output model.pt: the end of its name says in which format; .onnx is",
                      refused("--model", self.model, "--output", "model.pt"))
        self.assertIn("--output is missing", refused("--model", self.model))
        self.assertIn("--model is missing", refused("--output", "model.onnx"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
