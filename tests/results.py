# SPDX-License-Identifier: Apache-2.0
"""What says whether results are right (which samples, which bytes, how many steps again), in tests
that may try twice because they also wait for a busy machine:

    with results.judged():
        self.assertEqual({1}, set(uses.values()))

Once wrong is wrong: tests/report.py counts a test that has printed WRONG as failed, whatever its
second try says.
"""
import contextlib

WRONG = "WRONG RESULT: a second try does not make good for it"


@contextlib.contextmanager
def judged():
    try:
        yield
    except AssertionError:
        print(WRONG, flush=True)
        raise
