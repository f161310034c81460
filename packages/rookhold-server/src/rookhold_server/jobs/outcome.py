"""How a job ended, as the worker hands it to the finalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from rookhold_types.states import JobStatus


class Outcome(Struct, frozen=True, kw_only=True):
    """`effective_spec` is set only where an executor was asked and there is evidence of it.

    `events` are the last ones of the job, which its receipt counts already: they are stored with
    the ending, in one transaction.
    """

    status: JobStatus
    exit_code: int | None = None
    duration_ms: int = 0
    receipt: dict[str, Any]
    effective_spec: dict[str, Any] | None = None
    events: Sequence[tuple[str, dict[str, Any]]] = ()
