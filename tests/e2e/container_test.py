# SPDX-License-Identifier: Apache-2.0
"""Jobs that bring their own container, on one machine: programs that know nothing of Starling."""
import json
import os
import shutil
import subprocess
import sys
import unittest

from case import Case
from home import DATA, REPOSITORY, read, until

# Writes what it was told, waits for its peers to have done so too, then ends as it is told.
PROGRAM = """
import json, os, sys, time
folder, code = os.environ["OUT"], int(sys.argv[1])
told = {key: value for key, value in os.environ.items()
        if key.startswith(("PET_", "DMLC_", "TF_", "MASTER_", "STARLING_R", "LOCAL_"))
        or key in ("RANK", "WORLD_SIZE", "NODE_RANK", "GIVEN")}
round, rank = told["STARLING_ROUND"], told["RANK"]
with open(f"{folder}/{round}-{rank}.new", "w") as file:
    json.dump(told, file)
os.rename(f"{folder}/{round}-{rank}.new", f"{folder}/{round}-{rank}.json")
while len([name for name in os.listdir(folder)
           if name.startswith(round + "-") and name.endswith(".json")]) < int(told["WORLD_SIZE"]):
    time.sleep(0.02)
while code < 0 and not os.path.exists(f"{folder}/stop"):
    time.sleep(0.02)
first = round == "1" and rank == "0"
sys.exit(max(code, 0) if first else 0)
"""


class Container(Case):
    def setUp(self):
        super().setUp()
        self.out = os.path.join(self.home.folder, "out")
        os.makedirs(self.out, exist_ok=True)
        self.program = os.path.join(self.home.folder, "program.py")
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(PROGRAM)

    def job(self, code=0, framework="PyTorch", workers=2, command=None, **policy):
        return {
            "apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": "own"},
            "spec": {
                "workload": {"container": {"framework": framework}},
                "runPolicy": policy,
                "replicaSpecs": {"worker": {"replicas": workers, "template": {"spec": {
                    "containers": [{
                        "name": "trainer", "image": "not/used:1",
                        "command": command or [sys.executable, self.program, str(code)],
                        "env": [{"name": "OUT", "value": self.out},
                                {"name": "GIVEN", "value": "yes"}]}]}}}}}}

    def told(self, round, rank):
        return json.loads(read(os.path.join(self.out, f"{round}-{rank}.json"), "{}"))

    def condition(self, job, kind):
        found = [c for c in job["status"]["conditions"] if c["type"] == kind]
        return found[0]["status"] if found else None

    def test_workers_are_told_of_each_other_and_the_job_succeeds(self):
        job = self.run_job(self.job(workers=3))

        self.assertEqual("True", self.condition(job, "Succeeded"))
        for rank in range(3):
            told = self.told(1, rank)
            self.assertEqual("3", told["WORLD_SIZE"])
            self.assertEqual(str(rank), told["PET_NODE_RANK"])
            self.assertEqual("127.0.0.1", told["MASTER_ADDR"])
            self.assertEqual("yes", told["GIVEN"])
        self.assertEqual(1, len({self.told(1, rank)["MASTER_PORT"] for rank in range(3)}))

    def test_each_framework_has_its_variables(self):
        self.run_job(self.job(framework="TensorFlow"))
        config = json.loads(self.told(1, 1)["TF_CONFIG"])
        self.assertEqual({"type": "worker", "index": 1}, config["task"])
        self.assertEqual(2, len(set(config["cluster"]["worker"])))
        self.assertNotIn("PET_NNODES", self.told(1, 1))

    def test_failure_of_one_begins_a_new_round_for_all(self):
        job = self.run_job(self.job(code=3))

        self.assertEqual("True", self.condition(job, "Succeeded"))
        self.assertEqual("2", self.told(2, 0)["STARLING_ROUND"])
        self.assertEqual("2", self.told(2, 1)["WORLD_SIZE"])
        self.assertNotEqual(self.told(1, 0)["MASTER_PORT"], self.told(2, 0)["MASTER_PORT"])
        codes = [incident.get("exitCode") for incident in job["status"].get("incidents", [])]
        self.assertIn(3, codes)

    def test_scaling_begins_a_new_round_with_the_new_size(self):
        command = self.home.start("run", self.home.write("job.yaml", self.job(code=-1)),
                                  "-o", "json")
        until(lambda: all(self.told(1, rank) for rank in range(2)), 60, "the first round runs")
        self.home.run("scale", "tj/own", "--replicas", "3")
        until(lambda: all(self.told(2, rank) for rank in range(3)), 60,
              "the second round has three workers")
        self.assertEqual("3", self.told(2, 0)["WORLD_SIZE"])
        open(os.path.join(self.out, "stop"), "w", encoding="utf-8").close()
        job = self.finish(command)
        self.assertEqual("True", self.condition(job, "Succeeded"))

    def test_command_must_be_given(self):
        job = self.job()
        del job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]["command"]
        wrong = self.home.run("run", self.home.write("job.yaml", job), code=2)
        self.assertIn("containers[0].command", wrong.stderr)

    def test_pytorch_ddp_example_trains(self):
        torchrun = shutil.which("torchrun", path="/usr/bin")
        has_torch = torchrun and subprocess.run(["/usr/bin/python3", "-c", "import torch"],
                                                capture_output=True, check=False).returncode == 0
        if not has_torch:
            self.skipTest("python3-torch is missing (cmake/packages-develop.txt)")
        job = self.job(command=[torchrun, os.path.join(REPOSITORY, "examples/pytorch-ddp/train.py"),
                                f"--data={DATA}", f"--checkpoint={self.out}", "--at-least=0.9"])
        # Debian's torchrun cannot read its own default of these.
        job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]["env"] += [
            {"name": "PET_REDIRECTS", "value": "9:3"}, {"name": "PET_TEE", "value": "9:3"}]
        job = self.run_job(job, timeout=240)
        self.assertEqual("True", self.condition(job, "Succeeded"))
        self.assertTrue(os.path.exists(os.path.join(self.out, "pytorch-ddp.pt")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
