"""The contract of an executor as a test suite, for every backend here and for providers elsewhere.

Subclass `ExecutorContract` in a test module, implement `make`, and run pytest. What a report claims
is checked from inside the job, so a provider that claims what it does not do fails.
"""

import pytest

pytest.register_assert_rewrite(f"{__name__}.claims", f"{__name__}.contract", f"{__name__}.output")

from rookhold_exec.testing.claims import ClaimsContract  # noqa: E402
from rookhold_exec.testing.contract import RunningContract  # noqa: E402
from rookhold_exec.testing.harness import Harness, HarnessContract, Result  # noqa: E402
from rookhold_exec.testing.output import OutputContract  # noqa: E402

__all__ = ["ExecutorContract", "Harness", "Result"]


class ExecutorContract(RunningContract, OutputContract, ClaimsContract, HarnessContract):
    """Everything that is asked of an executor."""
