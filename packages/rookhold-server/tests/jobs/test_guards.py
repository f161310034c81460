"""Each guard refuses for its own reason, the first one decides."""

import msgspec
import pytest

from rookhold_server.jobs.admission import QueueAdmission
from rookhold_server.jobs.fairqueue import Pending
from rookhold_server.jobs.guards import judge
from rookhold_store.rows import JobRow
from rookhold_types import IsolationClass, JobStatus


@pytest.fixture
def row(job):
    spec = msgspec.json.encode(job().stored()).decode()
    return JobRow(
        "j", "acme", "python", JobStatus.QUEUED, 1, None, None, None, 256, spec, None, None
    )


@pytest.fixture
def pending():
    lease = QueueAdmission(capacity=1, tenant_capacity=1).reserve("acme")
    return Pending(job_id="j", tenant="acme", admitted_mem_mb=256, permit_mb=256, lease=lease)


def test_a_job_that_is_as_it_was_accepted_passes(kit, row, pending, job):
    verdict = judge(row, pending, kit.executor.posture)
    assert (verdict.spec, verdict.refused) == (job(), None)


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"tenant": "other"}, "tenant_lease_mismatch"),
        ({"spec_json": "{}"}, "invalid_stored_spec"),
        ({"spec_json": "not json"}, "invalid_stored_spec"),
        ({"admitted_mem_mb": None}, "missing_memory_lease"),
        ({"admitted_mem_mb": "256"}, "memory_lease_read_failed"),
        ({"admitted_mem_mb": 512}, "memory_lease_mismatch"),
        ({"tenant": "other", "spec_json": "{}", "admitted_mem_mb": 512}, "tenant_lease_mismatch"),
    ],
)
def test_a_row_that_differs_from_its_lease_is_refused(kit, row, pending, change, refused):
    changed = msgspec.structs.replace(row, **change)
    assert judge(changed, pending, kit.executor.posture).refused == refused


def test_isolation_is_judged_before_the_language(kit, row, pending, job):
    spec = job(requirements={"minimum_isolation": "hardware-vm"}).stored()
    changed = msgspec.structs.replace(row, spec_json=msgspec.json.encode(spec).decode())
    posture = msgspec.structs.replace(kit.executor.posture, languages=())
    assert judge(changed, pending, posture).refused == "minimum_isolation_unsatisfied"
    strong = msgspec.structs.replace(posture, isolation_class=IsolationClass.HARDWARE_VM)
    assert judge(changed, pending, strong).refused == "runtime_unavailable"
