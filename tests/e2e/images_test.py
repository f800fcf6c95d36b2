# SPDX-License-Identifier: Apache-2.0
"""Jobs on folders of images: the how-to's commands, kills, and files that cannot be read."""
import csv
import io
import json
import os
import re
import struct
import subprocess
import tarfile
import unittest
import zlib

import jobs
from case import Case
from home import DATA, REPOSITORY, kill, read, until

PAGE = os.path.join(REPOSITORY, "docs/how-to/images.md")
EPOCHS = 4
IMAGES = 320  # of the training set
SHAPE = [1, 12, 12]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, pixels):
    """A grey image; its rows may be fewer than its head says."""
    rows = b"".join(b"\0" + pixels[y * width:(y + 1) * width] for y in range(len(pixels) // width))
    head = struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def write_digits(folder, name, count):
    """The first digits of a table as images, one folder a class."""
    with open(os.path.join(DATA, name), encoding="ascii") as table:
        for number, row in zip(range(count), csv.DictReader(table)):
            place = os.path.join(folder, row["label"])
            os.makedirs(place, exist_ok=True)
            pixels = bytes(min(255, int(row[f"p{i}"]) * 16) for i in range(64))
            with open(os.path.join(place, f"{number}.png"), "wb") as file:
                file.write(png(8, 8, pixels))


class ImageCase(Case):
    def setUp(self):
        super().setUp()
        self.train = os.path.join(self.home.folder, "images/train")
        self.test = os.path.join(self.home.folder, "images/test")
        write_digits(self.train, "digits-train.csv", IMAGES)
        write_digits(self.test, "digits-test.csv", 100)

    def job(self, name="digits", workers=2, **changes):
        return jobs.digits(name, workers, EPOCHS, **{
            "dataset__train": {"imageFolder": {"uri": self.train, "shape": SHAPE}},
            "dataset__validation": {"imageFolder": {"uri": self.test, "shape": SHAPE}},
            "dataset__augmentation": {"randomCrop": {"minimumArea": 0.5}, "flip": True},
            "dataset__globalBatchSize": 32, "reproducible": True, **changes})

    def spoil(self, content, image="3/3.png"):
        """Writes another content over an image, and returns its path."""
        path = os.path.join(self.train, image)
        self.assertTrue(os.path.exists(path), path)
        with open(path, "wb") as file:
            file.write(content)
        return path


class HowTo(Case):
    def test_the_commands_of_the_page_work_as_they_stand(self):
        blocks = re.findall(r"^```sh\n(.*?)^```", read(PAGE), re.DOTALL | re.MULTILINE)
        self.assertEqual(5, len(blocks))
        place = os.path.join(self.home.folder, "somebody")
        os.makedirs(place)
        environment = dict(os.environ, **self.home.environment, STARLING=REPOSITORY)
        environment["PATH"] = (os.path.dirname(self.home.program("starling")) + ":" +
                               os.environ["PATH"])
        done = subprocess.run(["bash", "-c", "set -eo pipefail\n" + "\n".join(blocks)], cwd=place,
                              env=environment, capture_output=True, text=True, timeout=400)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr + self.home.describe())
        for name in ("photos", "packed"):
            metrics = self.result(self.home.job(name))["metrics"]
            self.assertGreater(metrics["validation/accuracy"], 0.9, metrics)
        judged = re.search(r"^accuracy +(\S+)$", done.stdout, re.MULTILINE)
        said = self.result(self.home.job("photos"))["metrics"]["validation/accuracy"]
        self.assertAlmostEqual(said, float(judged[1]), delta=1e-5)
        rows = done.stdout.partition("image,class,probability\n")[2].splitlines()[:9]
        self.assertEqual(9, len(rows), done.stdout)
        right = sum(re.fullmatch(r"\d+\.png,3,[01]\.?\d*", row) is not None for row in rows)
        self.assertGreaterEqual(right, 6, rows)
        with open(os.path.join(DATA, "digits-train.csv"), encoding="ascii") as table:
            self.assertEqual(str(len(table.readlines())), done.stdout.split()[-1],
                             "of all archives as many rows as of the table they come from")
        self.home.assert_nothing_runs()


class Models(ImageCase):
    def test_a_model_judges_images_as_its_job_did_wherever_they_lie(self):
        result = self.run_job(self.job(experiment__stepDelay="0s"))["status"]["result"]
        model = ("--model", result["model"]["uri"], "--data")
        judged = json.loads(self.home.run("evaluate", *model, self.test, "-o", "json").stdout)
        for name in ("accuracy", "loss"):
            self.assertAlmostEqual(result["metrics"][f"validation/{name}"], judged[name], delta=1e-5)
        rows = list(csv.DictReader(self.home.run("predict", *model, self.test).stdout.splitlines()))
        self.assertEqual(100, len(rows))
        right = sum(row["image"].split("/")[0] == row["class"] for row in rows)
        self.assertAlmostEqual(judged["accuracy"], right / 100, msg="classes are told by their names")
        self.check_archives(model, {row["image"]: row for row in rows})
        one = os.path.join(self.test, rows[0]["image"])
        alone = self.home.run("predict", *model, one).stdout.splitlines()[1].split(",")
        self.assertEqual([os.path.basename(one), rows[0]["class"]], alone[:2])
        with open(one, "wb") as file:
            file.write(b"no image")
        wrong = self.home.run("predict", *model, self.test, code=2)
        self.assertIn(one, wrong.stderr)

    def check_archives(self, model, rows):
        """`rows`: what is thought of the test images by their names in the folder."""
        path = os.path.join(self.home.folder, "new.tar")

        def pack(*names, content=None):
            with tarfile.open(path, "w") as archive:
                for name in names:
                    member = tarfile.TarInfo(name)
                    if content is None:
                        archive.add(os.path.join(self.test, name), name)
                    else:
                        member.size = len(content)
                        archive.addfile(member, io.BytesIO(content))

        names = sorted(rows, reverse=True)
        pack(*names)
        told = list(csv.DictReader(self.home.run("predict", *model, path).stdout.splitlines()))
        self.assertEqual(names, [row["image"] for row in told], "in the order of the archive")
        for row in told:
            # The order of a sum depends on where in a batch it is.
            self.assertEqual(rows[row["image"]]["class"], row["class"])
            self.assertAlmostEqual(float(rows[row["image"]]["probability"]),
                                   float(row["probability"]), delta=1e-4)
        os.truncate(path, os.path.getsize(path) // 2)
        wrong = self.home.run("predict", *model, path, code=2)
        self.assertIn(f"--data: {path} is no whole tar archive (", wrong.stderr)
        pack("notes.txt", content=b"no image")
        wrong = self.home.run("predict", *model, path, code=2)
        self.assertIn(f"--data: {path}: there are no images; pack ", wrong.stderr)
        pack("a/1.jpg", content=b"no image")
        wrong = self.home.run("predict", *model, path, code=2)
        self.assertIn(f"--data: {path}: a/1.jpg is neither a JPEG nor a PNG file; repair or remove "
                      "it\n", wrong.stderr)


class Training(ImageCase):
    def test_one_model_for_any_number_of_workers_and_whatever_is_killed(self):
        alone = self.digest(self.run_job(self.job("alone", 1, experiment__stepDelay="0s")))
        for workers in (2, 4):
            done = self.run_job(self.job(f"undisturbed-{workers}", workers,
                                         experiment__stepDelay="0s"))
            self.assertEqual(alone, self.digest(done), f"{workers} workers")
        command = self.home.start("run", self.home.write("job.json", self.job("digits", 3)),
                                  "-o", "json")
        for step, pod in ((5, "digits-worker-1"), (20, "digits-worker-0")):
            self.home.await_step(step, command=command)
            pid = until(lambda pod=pod: self.home.role_pid(pod), 30, f"{pod} runs")
            self.assertTrue(kill(pid))
        self.assertEqual(alone, self.digest(self.finish(command)), self.home.describe())

    def test_what_is_drawn_is_part_of_the_model_so_the_check_can_fail(self):
        changes = {"experiment__stepDelay": "0s"}
        drawn = self.run_job(self.job("drawn", **changes))
        plain = self.run_job(self.job("plain", dataset__augmentation={}, **changes))
        self.assertNotEqual(self.digest(drawn), self.digest(plain))


class Wrong(ImageCase):
    """What cannot be read is told by its file's name, and nothing is left running."""

    def refusal(self, **changes):
        job = self.job(experiment__stepDelay="0s", dataset__normalize=False, **changes)
        command = self.home.run("run", self.home.write("job.json", job), code=1, timeout=120)
        self.home.assert_nothing_runs()
        return command.stdout + command.stderr

    def test_a_damaged_image(self):
        path = self.spoil(png(8, 8, bytes(64))[:-30])
        self.assertRegex(self.refusal(), re.escape(path) + r" is a damaged PNG file \(")

    def test_an_image_that_promises_a_billion_pixels(self):
        path = self.spoil(png(60000, 60000, bytes(60000)))
        self.assertIn(f"{path} promises an image of 60000 by 60000 pixels", self.refusal())

    def test_more_bad_images_than_the_job_may_pass_over(self):
        for image in ("3/3.png", "4/4.png", "5/11.png"):
            self.spoil(b"no image", image)
        told = self.refusal(dataset__onBadRecord="Skip", dataset__maxBadRecords=1, workers=1)
        self.assertIn("there are more bad records than the 1 of dataset.maxBadRecords", told)

    def test_bad_images_that_may_be_passed_over_leave_one_model(self):
        for image in ("3/3.png", "4/4.png"):
            self.spoil(b"no image", image)
        changes = {"dataset__onBadRecord": "Skip", "experiment__stepDelay": "0s"}
        alone = self.run_job(self.job("alone", 1, **changes))
        three = self.run_job(self.job("three", 3, **changes))
        self.assertEqual(self.digest(alone), self.digest(three))

    def test_before_anything_starts(self):
        """Exit code 2: a folder without images, and augmentation of what is no image."""
        empty = os.path.join(self.home.folder, "empty")
        os.makedirs(empty)
        for changes, words in (
                ({"dataset__train__imageFolder__uri": empty},
                 f"spec.dataset.train.imageFolder.uri: {empty}: is not there, or holds no images"),
                ({"dataset__train__imageFolder__shape": [4, 8, 8]},
                 "spec.dataset.train.imageFolder.shape"),
                ({"dataset__train": jobs.source("digits-train.csv"),
                  "dataset__validation": jobs.source("digits-test.csv")},
                 "spec.dataset.augmentation")):
            with self.subTest(words=words):
                command = self.home.run("run", self.home.write("job.json", self.job(**changes)),
                                        code=2, timeout=60)
                self.assertIn(words, command.stdout + command.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
