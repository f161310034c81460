"""Schema v4: the judgement of a file, and what it takes to bring an older one there."""

from rookhold_store.schema.fresh import create
from rookhold_store.schema.judge import (
    ACCOUNTING_REVISION,
    GUEST_HISTORY,
    GUEST_PREFIX,
    Verdict,
    check,
    check_versions,
    is_fresh,
    judge,
    refuse_before_rollback,
    user_version,
)
from rookhold_store.schema.objects import (
    OF_SQLITE,
    SCHEMA_VERSION,
    SchemaObject,
    expected_objects,
    read_objects,
    schema_text,
    step_text,
)
from rookhold_store.schema.upgrade import Opening, upgrade

__all__ = [
    "ACCOUNTING_REVISION",
    "GUEST_HISTORY",
    "GUEST_PREFIX",
    "OF_SQLITE",
    "SCHEMA_VERSION",
    "Opening",
    "SchemaObject",
    "Verdict",
    "check",
    "check_versions",
    "create",
    "expected_objects",
    "is_fresh",
    "judge",
    "read_objects",
    "refuse_before_rollback",
    "schema_text",
    "step_text",
    "upgrade",
    "user_version",
]
