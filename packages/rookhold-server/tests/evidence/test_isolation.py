"""When an observation refutes a run."""

import msgspec
import pytest

from rookhold_exec.executor import Provenance
from rookhold_server.evidence.isolation import contradicts
from rookhold_types import IsolationClass, JobStatus

C = IsolationClass
RAN = [JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.TIMED_OUT, JobStatus.OOM_KILLED]


def ready(observed):
    return msgspec.structs.replace(
        Provenance.never_ready("any"), bootstrap_ready=True, isolation_class=observed
    )


@pytest.mark.parametrize("status", JobStatus)
def test_a_stronger_class_than_required_is_accepted(status):
    assert not contradicts(status, ready(C.GVISOR_APPLICATION_KERNEL), C.LINUX_SHARED_KERNEL)
    assert not contradicts(status, ready(C.NONE), C.NONE)


@pytest.mark.parametrize("status", JobStatus)
def test_a_weaker_class_than_required_is_a_contradiction(status):
    assert contradicts(status, ready(C.LINUX_SHARED_KERNEL), C.GVISOR_APPLICATION_KERNEL)
    assert contradicts(status, ready(C.HARDWARE_VM), C.WASM_CAPABILITY)


@pytest.mark.parametrize("status", RAN)
def test_an_outcome_of_a_job_that_was_never_ready_is_a_contradiction(status):
    assert contradicts(status, Provenance.never_ready("any"), C.NONE)


@pytest.mark.parametrize("status", [JobStatus.CANCELLED, JobStatus.ERROR])
def test_a_cancel_or_our_own_failure_before_ready_is_none(status):
    assert not contradicts(status, Provenance.never_ready("any"), C.GVISOR_APPLICATION_KERNEL)
