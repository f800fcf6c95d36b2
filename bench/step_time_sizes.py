# SPDX-License-Identifier: Apache-2.0
"""What both sides of bench/step_time.py must agree on; the peer's Python may import nothing else of ours."""
HIDDEN = {"digits": [128, 64], "mlp10m": [3200, 3200]}  # of the digits' perceptrons
BATCH = {"digits": 64, "mnist": 64, "mlp10m": 64, "alexnet64": 32, "vgg16-64": 16}
SAMPLES = 256  # made-up images of the large networks
