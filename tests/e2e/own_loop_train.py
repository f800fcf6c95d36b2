# SPDX-License-Identifier: Apache-2.0
"""The script of own_loop_test.py: fits a line by a loop of its own, and says what it does.

OWN_LOOP holds, as JSON, where a member is to die by its own hand, and what to leave out.
"""
import json
import os
import signal
import struct
import sys
import time
from array import array

import starling
from say import say

PLAN = json.loads(os.environ.get("OWN_LOOP", "{}"))
POD = sys.argv[sys.argv.index("--pod") + 1]
# The supervisor says how many processes the pod has had.
FIRST_LIFE = os.environ.get("STARLING_POD_START") == "1"
SAMPLES, WEIGHTS = 100, 4


def sample(number):
    """Features and label: every member makes the same from a sample's number."""
    features = [((number * 37 + k * 101) % 89) / 89 for k in range(WEIGHTS)]
    return features, 1 + sum((k + 1) * x for k, x in enumerate(features))


def die(place, step):
    wanted = PLAN.get("die", {})
    if not FIRST_LIFE or wanted.get("at") != place or wanted.get("step") != step.number:
        return
    if POD in wanted.get("pods", []):
        os.kill(os.getpid(), signal.SIGKILL)


def gradient(weights, ids):
    """Of the mean squared error of these samples, and that error itself."""
    slope, error = [0.0] * WEIGHTS, 0.0
    for number in ids:
        features, label = sample(number)
        off = sum(w * x for w, x in zip(weights, features)) - label
        error += off * off
        for k in range(WEIGHTS):
            slope[k] += 2 * off * features[k]
    count = max(1, len(ids))
    return array("d", (value / count for value in slope)), error / count


def fork_a_loader():
    """A process that lives as long as this one did not: as a loader of data would."""
    child = os.fork()
    if child == 0:
        os.setsid()
        time.sleep(PLAN["loader"])
        os._exit(0)


def main():
    # Each member begins with other numbers, as a model that nobody has seeded.
    weights = array("d", [float(len(POD) + ord(POD[-1]) - 48 + k) for k in range(WEIGHTS)])
    if PLAN.get("same_start", True):
        weights = array("d", [0.5] * WEIGHTS)
    momentum = array("d", [0.0] * WEIGHTS)
    state = {"weights": weights, "momentum": momentum}
    # As where the program computes on a GPU: what the library has are copies.
    copies = {name: array("d", one) for name, one in state.items()} if PLAN.get("copied") else state

    def refresh():
        say(refreshed=True)
        for name, one in state.items():
            if not PLAN.get("stale"):
                copies[name][:] = one

    def spread():
        for name, one in state.items():
            one[:] = copies[name]

    run = starling.join(state=copies, samples=SAMPLES, gradients={"weights": WEIGHTS}, model=["weights"],
                        metrics=("share",), refresh=refresh if PLAN.get("copied") else None)
    if PLAN.get("loader"):
        fork_a_loader()
    for step in run:
        say(given=step.number, view=step.view, ids=list(step.ids), epoch=step.epoch,
            restored=step.restored, repeated=step.repeated, pid=os.getpid(), at=time.time())
        if step.restored:
            spread()
        die("given", step)
        if PLAN.get("raise") == step.number:
            raise RuntimeError("the script has a mistake")
        if PLAN.get("break") == step.number:
            break
        if PLAN.get("skip") == step.number:
            continue
        slope, error = gradient(weights, step.ids)
        counts = step.reduce({"weights": slope}, loss=error, share=len(step.ids))
        if counts:
            die("counted", step)
        if counts or PLAN.get("ignore_commit"):
            say(counted=step.number, view=step.view, at=time.time())
            for k in range(WEIGHTS):
                momentum[k] = 0.9 * momentum[k] + slope[k]
                weights[k] -= 0.02 * momentum[k]
            die("applied", step)
    if run.restored:
        spread()
    say(over=True, weights=struct.pack(f"<{WEIGHTS}d", *weights).hex())
    run.close()
    say(closed=True)


main()
