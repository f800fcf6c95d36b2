# SPDX-License-Identifier: Apache-2.0
"""Jobs on tar archives of images: kills, the forms in which programs write them, and forged ones."""
import csv
import io
import os
import subprocess
import tarfile
import unittest

import jobs
from case import Case
from home import DATA, kill, until
from images_test import png, write_digits

EPOCHS = 3
SHAPE = [1, 8, 8]
SHARDS = 5
STEPS_PER_EPOCH = jobs.steps_of(1)


def digits_of(name, count=None):
    """(key, image, class) of a table's rows."""
    with open(os.path.join(DATA, name), encoding="ascii") as table:
        for number, row in enumerate(csv.DictReader(table)):
            if number == count:
                return
            pixels = bytes(min(255, int(row[f"p{i}"]) * 16) for i in range(64))
            yield f"{row['label']}/{number}", png(8, 8, pixels), row["label"]


def write_tar(path, samples, form=tarfile.PAX_FORMAT, prefix=""):
    """An archive as WebDataset's writer makes it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tarfile.open(path, "w", format=form) as archive:
        for key, image, label in samples:
            for ending, content in (("cls", label.encode()), ("json", b"{}"), ("png", image)):
                member = tarfile.TarInfo(f"{prefix}{key}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def write_shards(folder):
    """digits-train.csv in several archives, digits-test.csv in one."""
    samples = list(digits_of("digits-train.csv"))
    for shard in range(SHARDS):
        part = samples[shard * len(samples) // SHARDS:(shard + 1) * len(samples) // SHARDS]
        write_tar(os.path.join(folder, f"train-{shard:02}.tar"), part)
    write_tar(os.path.join(folder, "test.tar"), digits_of("digits-test.csv", 100))


def source(folder, name):
    return {"tar": {"uri": f"{folder}/{name}", "shape": SHAPE}}


def job(folder, name="digits", workers=2, **changes):
    return jobs.digits(name, workers, EPOCHS, **{
        "dataset__train": source(folder, f"train-{{00..{SHARDS - 1:02}}}.tar"),
        "dataset__validation": source(folder, "test.tar"),
        "dataset__augmentation": {"randomCrop": {"minimumArea": 0.6}},
        "reproducible": True, **changes})


class Training(Case):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.home.folder, "shards")
        write_shards(self.folder)

    def test_one_model_whatever_is_killed_and_each_sample_once(self):
        alone = self.digest(self.run_job(job(self.folder, "alone", 1, experiment__stepDelay="0s")))
        command = self.home.start("run", self.home.write("job.json", job(self.folder, workers=3)),
                                  "-o", "json")
        for step, pod in ((10, "digits-worker-1"), (35, "digits-worker-0")):
            self.home.await_step(step, command=command)
            pid = until(lambda pod=pod: self.home.role_pid(pod), 30, f"{pod} runs")
            self.assertTrue(kill(pid))
        self.assertEqual(alone, self.digest(self.finish(command)), self.home.describe())
        self.check_audit(EPOCHS)


class Forms(Case):
    def test_archives_train_as_the_folder_that_they_were_packed_from(self):
        """By Python in each of its forms, and by the machine's tar: long names among them."""
        images = os.path.join(self.home.folder, "images")
        write_digits(images, "digits-train.csv", 200)
        write_digits(os.path.join(self.home.folder, "test"), "digits-test.csv", 50)
        # In the folder's order, with names that a header cannot hold.
        samples = sorted(digits_of("digits-train.csv", 200), key=lambda sample: sample[0] + ".png")
        deep = "a-folder-with-a-long-name/" * 6
        paths = {"folder": {"imageFolder": {"uri": images, "shape": SHAPE}}}
        for name, form in (("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
            write_tar(os.path.join(self.home.folder, name + ".tar"), samples, form, deep)
        write_tar(os.path.join(self.home.folder, "ustar.tar"), samples, tarfile.USTAR_FORMAT)
        unpacked = os.path.join(self.home.folder, "unpacked")
        for key, image, label in samples:
            for ending, content in (("cls", label.encode()), ("png", image)):
                path = os.path.join(unpacked, f"{key}.{ending}")
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(content)
        members = [f"{key}.{ending}" for key, _, _ in samples for ending in ("cls", "png")]
        subprocess.run(["tar", "-C", unpacked, "-cf", os.path.join(self.home.folder, "tar.tar"),
                        *members], check=True)
        for name in ("gnu", "pax", "ustar", "tar"):
            paths[name] = source(self.home.folder, name + ".tar")
        losses = {}
        for name, train in paths.items():
            # A folder's classes have names, those of an archive are numbers alone.
            done = self.run_job(jobs.digits(name, 1, 1, **{
                "dataset__train": train, "experiment__stepDelay": "0s", "reproducible": True,
                "dataset__validation": {"imageFolder": {
                    "uri": os.path.join(self.home.folder, "test"), "shape": SHAPE}}}))
            losses[name] = self.result(done)["metrics"]["validation/loss"]
        self.assertEqual(1, len(set(losses.values())), losses)


class Wrong(Case):
    """What cannot be read is told by name, and nothing is left running."""

    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.home.folder, "shards")
        write_shards(self.folder)
        self.path = os.path.join(self.folder, "train-03.tar")

    def refusal(self, code, **changes):
        changes = {"experiment__stepDelay": "0s", "dataset__normalize": False, **changes}
        command = self.home.run("run", self.home.write("job.json", job(self.folder, **changes)),
                                code=code, timeout=120)
        self.home.assert_nothing_runs()
        return command.stdout + command.stderr

    def test_a_cut_archive(self):
        os.truncate(self.path, 100_000)
        self.assertIn(f"spec.dataset.train.tar.uri: {self.path} is no whole tar archive",
                      self.refusal(1))

    def test_a_forged_header(self):
        with open(self.path, "r+b") as file:
            file.seek(512 * 6 + 124)
            file.write(b"77777777777\0")
        self.assertIn(f"{self.path} is no whole tar archive (byte", self.refusal(1))

    def test_a_forged_first_archive_is_told_before_anything_starts(self):
        path = os.path.join(self.folder, "train-00.tar")
        with open(path, "r+b") as file:
            file.write(b"\x1f\x8b")
        self.assertIn(f"{path} is compressed as a whole", self.refusal(2))

    def test_an_image_that_is_none(self):
        samples = list(digits_of("digits-train.csv", 100))
        samples[70] = (samples[70][0], b"no image", samples[70][2])
        write_tar(self.path, samples)
        self.assertIn(f"{self.path}: {samples[70][0]}.png is neither a JPEG nor a PNG file",
                      self.refusal(1))
        done = self.run_job(job(self.folder, "skips", dataset__onBadRecord="Skip",
                                experiment__stepDelay="0s"))
        self.assertIn("result", done["status"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
