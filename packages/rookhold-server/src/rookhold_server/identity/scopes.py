"""The five scopes: no wildcard, no hierarchy, one fixed order in every report."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Scope(StrEnum):
    JOBS_SUBMIT = "jobs:submit"
    JOBS_READ = "jobs:read"
    JOBS_CANCEL = "jobs:cancel"
    SERVICE_READ = "service:read"
    METRICS_READ = "metrics:read"


ALL_SCOPES: Final = frozenset(Scope)


def in_order(scopes: frozenset[Scope]) -> tuple[str, ...]:
    return tuple(scope.value for scope in Scope if scope in scopes)
