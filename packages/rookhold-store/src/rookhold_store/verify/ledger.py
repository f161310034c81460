"""The accounts: each job's against its rows, and the sums against the accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rookhold_store.accounting import RESERVE_ACCEPTED, RESERVE_PENDING
from rookhold_store.verify.cells import Undecodable
from rookhold_store.verify.finding import Finding
from rookhold_store.verify.tables import LEDGER, TENANT_SUMS, TOTAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

    from rookhold_store.verify.jobs import Job


def of_job(
    db: apsw.Connection, job: Job, job_id: str, key: bytes, *, retained: int, pending: bool
) -> Iterator[Finding]:
    """Compare the account of one job, in the snapshot in which its rows were counted."""
    row = next(LEDGER.rows(db, "WHERE job_id = CAST(? AS TEXT)", (key,)), None)
    if row is None:
        yield Finding(place="job_storage_usage", problem="has no row", job_id=job_id)
        return
    broken = LEDGER.complaints(row)
    for column, problem in (*broken, *_compare(row, job, retained, pending=pending)):
        yield Finding(place=f"job_storage_usage.{column}", problem=problem, job_id=job_id)


def _compare(
    row: tuple[Any, ...], job: Job, retained: int, *, pending: bool
) -> Iterator[tuple[str, str]]:
    _, tenant, stored, reserved, memory = row
    if tenant != job.tenant:
        yield "tenant", "is not the tenant of jobs.tenant"
    if memory != job.admitted_mem_mb:
        yield "requested_mem_mb", f"is {memory}, jobs.admitted_mem_mb is {job.admitted_mem_mb}"
    if stored != retained:
        yield "retained_bytes", f"is {stored}, the rows hold {retained}"
    low = RESERVE_PENDING if pending or not job.terminal else 0
    high = low if job.terminal else RESERVE_ACCEPTED
    if type(reserved) is int and not low <= reserved <= high:
        wanted = str(low) if low == high else f"{low}..{high}"
        yield "reserved_bytes", f"is {reserved}, should be {wanted}"


def sums(db: apsw.Connection) -> Iterator[Finding]:
    """Compare what tenants and all together are charged with the sum of the accounts."""
    charged: dict[bytes | None, int | None] = {}
    for tenant, total in db.execute(
        "SELECT CAST(tenant AS BLOB), sum(retained_bytes + reserved_bytes)"
        " FROM job_storage_usage GROUP BY tenant"
    ):
        charged[tenant] = total
    rows = list(TOTAL.rows(db, ""))
    if len(rows) != 1:
        yield Finding(place="storage_usage_total", problem=f"has {len(rows)} rows, not one")
    for row in rows:
        for column, problem in TOTAL.complaints(row):
            yield Finding(place=f"storage_usage_total.{column}", problem=problem)
        total = sum(value for value in charged.values() if value is not None)
        if row[1] != total:
            yield Finding(
                place="storage_usage_total.charged_bytes",
                problem=f"is {row[1]}, the accounts add up to {total}",
            )
    for row in TENANT_SUMS.rows(db, ""):
        yield from _tenant(row, charged)
    for tenant in charged:
        yield Finding(
            place="tenant_storage_usage.tenant",
            problem="has no row",
            tenant=(tenant or b"").decode(errors="backslashreplace"),
        )


def _tenant(row: tuple[Any, ...], charged: dict[bytes | None, int | None]) -> Iterator[Finding]:
    tenant, stored = row
    name = tenant.decode(errors="backslashreplace") if isinstance(tenant, bytes) else str(tenant)
    for column, problem in TENANT_SUMS.complaints(row):
        yield Finding(place=f"tenant_storage_usage.{column}", problem=problem, tenant=name)
    key = bytes(tenant) if isinstance(tenant, Undecodable) else str(tenant).encode()
    total = charged.pop(key, None)
    if total is None:
        yield Finding(
            place="tenant_storage_usage.tenant", problem="has no account of a job", tenant=name
        )
    elif stored != total:
        yield Finding(
            place="tenant_storage_usage.charged_bytes",
            problem=f"is {stored}, the accounts add up to {total}",
            tenant=name,
        )
