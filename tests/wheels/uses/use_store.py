"""Take a job from its acceptance to its end in a real file, and read it back from a second open."""

from rookhold_store import Accept, Append, Finalise, Start, Store
from rookhold_types.events import check_chain
from rookhold_types.ids import new_job_id
from rookhold_types.jobs import JobSpec, fingerprint
from rookhold_types.states import JobStatus

spec = JobSpec(language="python", code="print(6*7)")
job_id = new_job_id()
with Store.open("jobs/store.db") as store:
    store.call(
        Accept(
            job_id=job_id,
            tenant="acme",
            language=spec.language,
            spec=spec.stored(),
            admitted_mem_mb=256,
            now_ms=store.clock(),
            fingerprint=fingerprint(spec),
        )
    )
    store.call(Start(job_id=job_id, now_ms=store.clock()))
    line = ("stdout", {"line": "42", "eol": True})
    store.call(Append(job_id=job_id, events=[line], now_ms=store.clock()))
    store.call(
        Finalise(
            job_id=job_id,
            status=JobStatus.SUCCEEDED,
            exit_code=0,
            now_ms=store.clock(),
            duration_ms=7,
            receipt={"killed_by": None},
            effective_spec=None,
        )
    )
with Store.open("jobs/store.db") as store:
    row = store.read.get("acme", job_id)
    assert row is not None
    events = store.read.events_after(job_id, 0, 100)
    assert check_chain(job_id, events).complete
    print(row.status)
