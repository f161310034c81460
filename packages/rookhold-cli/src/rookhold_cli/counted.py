"""Tells in lines what a database holds."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from . import stored
from .errors import UsageError
from .output import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

Quotas = tuple[int | None, int | None]

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_MIB: Final = 1024 * 1024


def size(count: int) -> str:
    """Return a number of bytes as people write it."""
    value, unit = float(count), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{count} B" if not unit else f"{value:.1f} {_UNITS[unit]}"


def many(count: int, thing: str) -> str:
    """Return `1 job` or `2 jobs`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def quotas() -> Quotas:
    """Return the quotas in bytes, overall and of a tenant, where the environment sets them."""
    settings = stored.part("rookhold_server.config.settings")
    errors = stored.part("rookhold_types.errors")
    try:
        overall, tenant = settings.read_quotas(os.environ)
    except errors.RookholdError as exc:
        raise UsageError(str(exc)) from exc
    return overall and overall * _MIB, tenant and tenant * _MIB


def lines(found: Any, limits: Quotas) -> Iterator[str]:
    """Yield what `rookhold db stats` prints."""
    by_status = ", ".join(f"{count} {status}" for status, count in found.by_status.items() if count)
    yield _line("jobs", f"{found.jobs}" + (f": {by_status}" if by_status else ""))
    if found.jobs:
        yield _line(
            "accepted",
            f"{_time(found.oldest_created_at_ms)} to {_time(found.newest_created_at_ms)}",
        )
    yield _line("hidden", f"{found.hidden} being removed")
    yield _line(
        "attestations",
        f"{found.attested} kept, {found.pending} pending, {found.waived} given up,"
        f" {found.quarantined} in quarantine",
    )
    yield _line("keys", str(found.keys))
    yield _line("tenants", str(found.tenants))
    yield _line(
        "charged",
        f"{_of(found.charged_bytes, limits[0])}:"
        f" {size(found.retained_bytes)} retained, {size(found.reserved_bytes)} reserved",
    )
    for tenant in found.most_charged:
        yield _line("", f"{plain(tenant.tenant)}: {_of(tenant.charged_bytes, limits[1])}")
    yield _line(
        "file",
        f"{size(found.file_bytes)}, of it {size(found.free_bytes)} free"
        + ("" if found.gives_back else " (`rookhold db compact` gives it back)"),
    )
    yield _line("log", size(found.log_bytes))
    yield from (_line("not counted", sentence) for sentence in found.skipped)


def _line(name: str, text: str) -> str:
    return f"{name:<14}{text}"


def _of(charged: int, quota: int | None) -> str:
    if quota is None:
        return size(charged)
    return f"{size(charged)} of {size(quota)} ({charged / quota:.0%})"


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
