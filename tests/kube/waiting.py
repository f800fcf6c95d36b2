# SPDX-License-Identifier: Apache-2.0
"""Waiting for conditions with a deadline; nothing in these tests sleeps for luck."""
import time


def wait_for(holds, deadline, what, every=0.05):
    """The first true value of holds(), asked again and again until `deadline` seconds are over.

    `what` says what is awaited: a text, or a function that describes what was found instead.
    """
    end = time.monotonic() + deadline
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline} s: {what() if callable(what) else what}")
        time.sleep(every)
