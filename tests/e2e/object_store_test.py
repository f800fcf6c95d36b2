# SPDX-License-Identifier: Apache-2.0
"""Jobs whose data, checkpoints and model lie in an object store, or whose data a web server has.

The store is a real one that checks signatures (tests/storage/with_object_store.py). Where Go is
missing it cannot be built, and the test is skipped with exit code 77.
"""
import contextlib
import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
import unittest

import jobs
from case import Case
from home import DATA, REPOSITORY, read, sha256
import tar_test
from images_test import write_digits

sys.path.insert(0, os.path.join(REPOSITORY, "tests/storage"))
from with_object_store import BUCKET, ObjectStore  # noqa: E402  (the path must come first)
from programs import run_main  # noqa: E402

EPOCHS = 6
STORE = None


def source(base, name):
    return {"csv": {"uri": f"{base}/{name}", "labelColumn": "label", "shape": [1, 8, 8]}}


def remote(base, **changes):
    """The digits job with data below `base`."""
    return jobs.digits(dataset__train=source(base, "digits-train.csv"),
                       dataset__validation=source(base, "digits-test.csv"), **changes)


class StoreCase(Case):
    def setUp(self):
        super().setUp()
        self.home.environment |= STORE.environment()
        folder = os.path.join(STORE.folder, BUCKET)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(os.path.join(folder, "data"))
        for name in ("digits-train.csv", "digits-test.csv"):
            shutil.copy(os.path.join(DATA, name), os.path.join(folder, "data", name))

    def stored(self, uri):
        """The file that an object is in the store's folder."""
        return os.path.join(STORE.folder, uri.removeprefix("s3://"))


class Training(StoreCase):
    def test_everything_dies_and_the_job_goes_on_from_what_lies_in_the_store(self):
        wanted = self.digest(self.run_job(jobs.digits("undisturbed", epochs=EPOCHS, reproducible=True,
                                                      experiment__stepDelay="0s")))
        job = remote(f"s3://{BUCKET}/data", epochs=EPOCHS, reproducible=True,
                     checkpoint__uri=f"s3://{BUCKET}/jobs")
        path = self.home.write("job.json", job)
        command = self.home.start("run", path, "-o", "json")
        self.home.await_step(70, command=command)
        uid = self.home.job()["metadata"]["uid"]
        self.home.kill_everything()
        STORE.stop()
        reached = self.home.steps()
        manifests = [name for name in STORE.names("jobs/") if name.endswith("/manifest.json")]
        self.assertTrue(manifests, STORE.names())

        STORE.start()
        done = self.finish(self.home.start("run", path, "-o", "json"))
        self.assertEqual(uid, done["metadata"]["uid"], "it is the same job")
        logs = "".join(read(log) for log in self.logs())
        resumed = [int(step) for step in
                   re.findall(r'goes on from a checkpoint","checkpoint":"[-0-9]*-(\d+)"', logs)]
        self.assertTrue(resumed and 20 < resumed[-1] <= reached, (resumed, reached))
        model = self.result(done)["model"]
        self.assertEqual(f"s3://{BUCKET}/jobs/{uid}/model.safetensors", model["uri"])
        self.assertEqual(model["sha256"], sha256(self.stored(model["uri"])))
        self.assertEqual(wanted, model["sha256"], "what was trained before the end is in it")
        self.assertEqual(f"s3://{BUCKET}/jobs/{uid}/checkpoints/",
                         done["status"]["lastCheckpoint"]["uri"].rpartition("/")[0] + "/")

    def logs(self):
        folder = self.home.job_folder()
        return [os.path.join(root, name) for root, _, names in os.walk(f"{folder}/pods")
                for name in names if name == "log"]

    def test_a_store_that_is_away_for_a_while_costs_checkpoints_and_no_steps(self):
        job = remote(f"s3://{BUCKET}/data", epochs=EPOCHS, checkpoint__uri=f"s3://{BUCKET}/jobs")
        command = self.home.start("run", self.home.write("job.json", job), "-o", "json")
        self.home.await_step(20, command=command)
        STORE.stop()
        at = self.home.steps()
        self.home.await_step(at + 50, command=command)
        STORE.start()
        done = self.finish(command)
        self.check_audit(EPOCHS)
        self.assertEqual(self.digest(done), sha256(self.stored(self.result(done)["model"]["uri"])))

    def test_parameter_servers_keep_their_shards_there(self):
        job = remote(f"s3://{BUCKET}/data", epochs=2, checkpoint__uri=f"s3://{BUCKET}/jobs",
                     exchange={"parameterServer": {}})
        done = self.run_job(job)
        names = STORE.names("jobs/")
        self.assertTrue(any("/shards/shard-0/" in name for name in names), names)
        self.assertEqual(self.digest(done), sha256(self.stored(self.result(done)["model"]["uri"])))


class Images(StoreCase):
    def test_images_in_the_store_train_as_those_on_a_disk(self):
        stored = os.path.join(STORE.folder, BUCKET, "images")
        write_digits(os.path.join(stored, "train"), "digits-train.csv", 160)
        write_digits(os.path.join(stored, "test"), "digits-test.csv", 40)

        def job(name, base):
            return jobs.digits(name, epochs=2, reproducible=True, experiment__stepDelay="0s", **{
                f"dataset__{part}": {"imageFolder": {"uri": f"{base}/{where}", "shape": [1, 8, 8]}}
                for part, where in (("train", "train"), ("validation", "test"))})
        here = self.run_job(job("here", stored))
        there = self.run_job(job("there", f"s3://{BUCKET}/images"))
        self.assertEqual(self.digest(here), self.digest(there))


    def test_archives_in_the_store_train_as_those_on_a_disk(self):
        stored = os.path.join(STORE.folder, BUCKET, "shards")
        tar_test.write_shards(stored)

        def digest(name, base):
            return self.digest(self.run_job(tar_test.job(base, name, experiment__stepDelay="0s")))
        self.assertEqual(digest("here", stored), digest("there", f"s3://{BUCKET}/shards"))

    def test_a_job_whose_images_are_cached_goes_on_though_the_store_has_died(self):
        """Without the cache the second epoch's images could not be had: random crops keep none."""
        tar_test.write_shards(os.path.join(STORE.folder, BUCKET, "shards"))
        cache = os.path.join(self.home.folder, "cache")
        job = tar_test.job(f"s3://{BUCKET}/shards", dataset__cache__uri=cache,
                           dataset__cache__maxBytes=16 << 20)
        try:
            command = self.home.start("run", self.home.write("job.json", job), "-o", "json")
            self.home.await_step(tar_test.STEPS_PER_EPOCH + 8, command=command)
            STORE.stop()
            done = self.finish(command)
        finally:
            STORE.stop()
            STORE.start()
        self.check_audit(tar_test.EPOCHS)
        there = self.run_job(tar_test.job(f"s3://{BUCKET}/shards", "uncached",
                                          experiment__stepDelay="0s"))
        self.assertEqual(self.digest(there), self.digest(done))
        kept = sum(os.path.getsize(os.path.join(folder, name))
                   for folder, _, names in os.walk(cache) for name in names)
        self.assertTrue(100_000 < kept < 16 << 20, kept)


class Wrong(StoreCase):
    """Each is told with the field, what is wrong and what to do; nothing is left running."""

    def refusal(self, job, code, **environment):
        for name, value in environment.items():
            if value is None:
                del self.home.environment[name]
            else:
                self.home.environment[name] = value
        command = self.home.run("run", self.home.write("job.json", job), code=code, timeout=120)
        self.home.assert_nothing_runs()
        return command.stdout + command.stderr

    def data(self, **environment):
        return self.refusal(remote(f"s3://{BUCKET}/data", epochs=1), 2, **environment)

    def test_data_without_credentials(self):
        told = self.data(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)
        self.assertIn("spec.dataset.train.csv.uri", told)
        self.assertIn("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", told)

    def test_data_with_a_wrong_secret(self):
        told = self.data(AWS_SECRET_ACCESS_KEY="mistyped")
        self.assertIn("spec.dataset.train.csv.uri", told)
        self.assertIn("correct AWS_SECRET_ACCESS_KEY", told)
        self.assertNotIn("mistyped", told)

    def test_data_that_are_not_there(self):
        told = self.refusal(remote(f"s3://{BUCKET}/elsewhere", epochs=1), 2)
        self.assertIn(f"spec.dataset.train.csv.uri: s3://{BUCKET}/elsewhere/digits-train.csv", told)
        self.assertIn("there is no such file; check the URI", told)

    def checkpoint(self, uri, **environment):
        return self.refusal(jobs.digits(epochs=1, checkpoint__uri=uri), 1, **environment)

    def test_checkpoints_in_a_bucket_that_is_not_there(self):
        told = self.checkpoint("s3://no-such-bucket/jobs")
        self.assertIn("spec.checkpoint.uri: s3://no-such-bucket/jobs/", told)
        self.assertIn("there is no bucket no-such-bucket", told)

    def test_checkpoints_in_another_region(self):
        told = self.checkpoint(f"s3://{BUCKET}/jobs", AWS_REGION="eu-west-7")
        self.assertIn("spec.checkpoint.uri", told)
        self.assertIn("set AWS_REGION to it", told)

    def test_checkpoints_on_a_web_server(self):
        told = self.refusal(jobs.digits(epochs=1, checkpoint__uri="https://host/x"), 2)
        self.assertIn("spec.checkpoint.uri", told)
        self.assertIn("has the scheme https, which cannot be used here", told)


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Hands out parts of files, which Python's own server does not."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None:
            super().do_GET()
            return
        begin, last = (int(place) for place in wanted.groups())
        path = self.translate_path(self.path)
        with open(path, "rb") as file:
            file.seek(begin)
            content = file.read(last - begin + 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{last}/{os.path.getsize(path)}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def web_server(handler, folder):
    """Its URL."""
    handler = functools.partial(handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class Web(Case):
    def test_data_come_from_a_web_server(self):
        changes = {"epochs": 2, "reproducible": True, "experiment__stepDelay": "0s"}
        with web_server(http.server.SimpleHTTPRequestHandler, DATA) as url:
            there = self.run_job(remote(url, **changes))
        here = self.run_job(jobs.digits("here", **changes))
        self.assertEqual(self.digest(here), self.digest(there))

    def test_archives_come_from_a_web_server(self):
        folder = os.path.join(self.home.folder, "shards")
        tar_test.write_shards(folder)
        here = self.run_job(tar_test.job(folder, "here", experiment__stepDelay="0s"))
        with web_server(Ranges, folder) as url:
            there = self.run_job(tar_test.job(url, "there", experiment__stepDelay="0s"))
        self.assertEqual(self.digest(here), self.digest(there))


class HowTo(StoreCase):
    def test_the_commands_of_the_page_work_as_they_stand(self):
        page = read(os.path.join(REPOSITORY, "docs/how-to/object-stores.md"))
        blocks = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        shutil.rmtree(os.path.join(STORE.folder, BUCKET, "data"))
        environment = dict(self.home.environment, BUCKET=BUCKET,
                           PATH=os.path.dirname(self.home.program("starling")) + ":" +
                           os.environ["PATH"])
        done = subprocess.run(["bash", "-c", "set -eo pipefail\n" + "\n".join(blocks)],
                              cwd=REPOSITORY, env=environment, capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr + self.home.describe())
        (model,) = [name for name in STORE.names("jobs/") if name.endswith("model.safetensors")]
        self.assertIn(f"s3://{BUCKET}/{model}", done.stdout + done.stderr)
        self.home.assert_nothing_runs()

    def test_the_job_of_the_page_for_a_cluster_is_valid(self):
        page = read(os.path.join(REPOSITORY, "docs/how-to/object-stores.md"))
        (job,) = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        told = self.home.run("validate", self.home.write("job.yaml", job)).stdout
        self.assertIn("envFrom", told)


def main():
    global STORE
    STORE = ObjectStore()
    try:
        return not unittest.main(verbosity=2, exit=False).result.wasSuccessful()
    finally:
        STORE.close()


if __name__ == "__main__":
    run_main(main)
