# SPDX-License-Identifier: Apache-2.0
"""The loop of bench/state_copy.py: so many bytes of state, and gradients of one number."""
import sys
import time
from array import array

import starling

STEP = 0.01  # seconds


def main():
    state = array("B", bytes(int(sys.argv[1])))
    weight = array("f", [0.0])
    run = starling.join(state={"large": state, "weight": weight}, samples=64,
                        gradients={"weight": 1}, model=["weight"])
    for step in run:
        time.sleep(STEP)
        step.reduce({"weight": array("f", [1.0])}, loss=0.0)
    run.close()


main()
