# SPDX-License-Identifier: Apache-2.0
"""Jobs in numbers of fewer than 32 bits: a model as good, and one digest whoever is killed."""
import unittest

import jobs
from case import Case
from home import kill, until

EPOCHS = 5


class Numerics(Case):
    """Each way: settings that learn the digits, and by how much the model may be worse."""

    ACCURACY = 0.9

    def job(self, name, workers, numerics, **changes):
        return jobs.digits(name, workers=workers, epochs=EPOCHS,
                           **({"numerics": numerics} if numerics else {}), **changes)

    def trained(self, name, numerics, workers=1, **changes):
        final = self.run_job(self.job(name, workers, numerics, experiment__stepDelay="0s", **changes))
        metrics = {**final["status"]["progress"]["metrics"], **self.result(final)["metrics"]}
        self.say(f"{name}: {metrics}")
        self.assertGreater(metrics["validation/accuracy"], self.ACCURACY)
        return final, metrics

    def check_one_digest(self, numerics, **changes):
        """Of one to four workers in reproducible mode, one of which is killed."""
        final, metrics = self.trained("baseline", numerics, reproducible=True, **changes)
        baseline = self.digest(final)
        for workers in (2, 3, 4):
            with self.subTest(workers=workers):
                name = f"digits-{workers}"
                path = self.home.write("job.yaml", self.job(name, workers, numerics,
                                                            reproducible=True, **changes))
                command = self.home.start("run", path, "-o", "json")
                self.home.await_step(20, name, command=command)
                self.assertTrue(kill(until(
                    lambda name=name, workers=workers:
                    self.home.pod_pid(f"{name}-worker-{workers - 1}"), 30, "a worker runs")))
                if workers == 3:  # the state of its numbers is in the checkpoint
                    self.home.await_step(50, name, command=command)
                    self.home.kill_everything()
                    command = self.home.start("run", path, "-o", "json")
                self.assertEqual(baseline, self.digest(self.finish(command)), self.home.describe())
                self.check_audit(EPOCHS, name)
        plain, _ = self.trained("plain", None, reproducible=True, **changes)
        self.assertNotEqual(baseline, self.digest(plain), "the check can fail")
        return metrics

    def refuse(self, numerics, why, **changes):
        path = self.home.write("job.yaml", self.job("refused", 2, numerics, **changes))
        self.assertIn(why, self.home.run("run", path, code=2).stderr)

    def test_mixed_precision_skips_the_same_steps_everywhere(self):
        # So large a scale makes gradients of the first steps infinite.
        metrics = self.check_one_digest({"mixedPrecision": {"lossScale": 16777216}})
        self.assertGreater(metrics["numerics/skippedSteps"], 5)
        self.assertEqual(metrics["numerics/lossScale"],
                         16777216 / 2 ** metrics["numerics/skippedSteps"])

    def test_mixed_precision_in_the_upper_16_bits(self):
        _, metrics = self.trained("bfloat", {"mixedPrecision": {"compute": "Bfloat16"}}, workers=2)
        self.assertEqual(metrics["numerics/skippedSteps"], 0)

    def test_fixed_point_weights_are_drawn_alike(self):
        self.check_one_digest({"fixedPoint": {"fractionBits": 12}})

    def test_dynamic_fixed_point_has_ranges_in_checkpoints(self):
        metrics = self.check_one_digest({"dynamicFixedPoint": {"adjustEvery": 1000}})
        self.assertLess(metrics["numerics/overflow"], 0.0005)

    def test_layers_in_logarithmic_numbers(self):
        self.trained("logarithmic", {"logarithmic": {}}, workers=2)

    def test_pruned_weights_stay_zero(self):
        metrics = self.check_one_digest(
            {"sparsity": {"magnitude": {"share": 0.8, "fromStep": 10, "toStep": 60}}})
        self.assertAlmostEqual(metrics["numerics/masked"], 0.8, delta=0.001)

    def test_two_of_four_beside_mixed_precision(self):
        _, metrics = self.trained("fours", {"mixedPrecision": {}, "sparsity": {"twoOfFour": {}}},
                                  workers=2)
        self.assertEqual(metrics["numerics/masked"], 0.5)

    def test_lars_learns_in_large_batches(self):
        self.ACCURACY = 0.85
        self.trained("lars", None, workers=2, dataset__globalBatchSize=512, stop={"epochs": 30},
                     optimizer={"lars": {"learningRate": 1, "trust": 0.02}})

    def test_servers_do_not_skip_together(self):
        servers = {"exchange": {"parameterServer": {}}}
        self.refuse({"mixedPrecision": {}}, "whose servers apply each push by itself", **servers)
        self.refuse(None, "whose shards are parts of tensors",
                    optimizer={"lars": {}}, **servers)


if __name__ == "__main__":
    unittest.main(verbosity=2)
