# SPDX-License-Identifier: Apache-2.0
"""Whether a test has failed, for what comes after it: unittest says so to nobody else."""


def has_failed(test):
    """To be asked in a cleanup; `_outcome.success` is true again by then."""
    result = test._outcome.result
    return any(getattr(one, "test_case", one) is test for one, _ in result.errors + result.failures)
