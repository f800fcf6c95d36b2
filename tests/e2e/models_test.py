# SPDX-License-Identifier: Apache-2.0
"""What networks of a job file are good for beside classes' accuracy; the how-to's commands."""
import os
import re
import subprocess
import unittest

import jobs
from case import Case
from home import REPOSITORY, read

PAGE = os.path.join(REPOSITORY, "docs/how-to/models.md")


class HowTo(Case):
    def test_the_commands_of_the_page_work_as_they_stand(self):
        blocks = re.findall(r"^```sh\n(.*?)^```", read(PAGE), re.DOTALL | re.MULTILINE)
        self.assertEqual(1, len(blocks))
        place = os.path.join(self.home.folder, "somebody")
        os.makedirs(place)
        environment = dict(os.environ, **self.home.environment, STARLING=REPOSITORY)
        environment["PATH"] = (os.path.dirname(self.home.program("starling")) + ":" +
                               os.environ["PATH"])
        done = subprocess.run(["bash", "-c", "set -eo pipefail\n" + "\n".join(blocks)], cwd=place,
                              env=environment, capture_output=True, text=True, timeout=300,
                              check=False)
        self.say(done.stdout)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^class +samples +recall +precision$")


class TopFive(Case):
    def test_a_job_ends_when_its_class_is_often_enough_among_the_five_most_likely(self):
        target = {"metric": "validation/top5Accuracy", "atLeast": 0.97}
        result = self.result(self.run_job(jobs.digits(
            epochs=20, experiment__stepDelay="0s", stop={"epochs": 20, "target": target})))
        metrics = result["metrics"]
        self.say(f"{metrics} after {result['epochs']} epochs")
        self.assertTrue(result["targetReached"])
        self.assertLess(result["epochs"], 20)
        self.assertGreaterEqual(metrics["validation/top5Accuracy"], 0.97)
        self.assertLess(metrics["validation/accuracy"], metrics["validation/top5Accuracy"])

    def test_where_it_would_always_be_there_is_no_such_metric(self):
        path = self.home.write("job.yaml", jobs.digits(
            epochs=1, dataset__train={"synthetic": {"classes": 5}},
            dataset__validation={"synthetic": {"classes": 5}},
            stop={"epochs": 1, "target": {"metric": "validation/top5Accuracy", "atLeast": 0.5}}))
        done = self.home.run("run", path, code=1)
        self.assertIn("the workload has no metric validation/top5Accuracy; it has validation/loss, "
                      "validation/accuracy", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
