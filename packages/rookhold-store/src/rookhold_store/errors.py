"""What the store refuses, each with a stable code."""

from collections.abc import Sequence
from typing import ClassVar

from rookhold_types.errors import RookholdError


class StoreError(RookholdError):
    """Root of what the store raises on purpose."""

    code: ClassVar[str] = "store"


class StorageUnavailableError(StoreError):
    """The database could not be read or written now; nothing of the operation was kept."""

    code: ClassVar[str] = "storage_unavailable"
    retryable: ClassVar[bool] = True


class StorageFullError(StorageUnavailableError):
    """The file system has no room; nothing of the operation was kept."""

    code: ClassVar[str] = "storage_reserve"


class ReserveReachedError(StorageFullError):
    """A new job would take disk that is to stay free; the store itself can still be written."""


class QuotaError(StoreError):
    """Root of the two refusals of a charge that has no room; nothing of the operation was kept."""

    retryable: ClassVar[bool] = True


class TenantQuotaError(QuotaError):
    """The tenant's jobs would be charged more than one tenant may be."""

    code: ClassVar[str] = "tenant_storage_quota"


class GlobalQuotaError(QuotaError):
    """All tenants' jobs together would be charged more than the store may hold."""

    code: ClassVar[str] = "storage_capacity"


class StoreClosedError(StoreError):
    """The store was closed before the operation was taken up; it was not tried."""

    code: ClassVar[str] = "store_closed"


class JobNotFoundError(StoreError):
    """No job has this id, or it is hidden until its removal is complete."""

    code: ClassVar[str] = "job_not_found"


class JobEndedError(StoreError):
    """The job is terminal: its history is closed."""

    code: ClassVar[str] = "job_ended"


class IdempotencyConflictError(StoreError):
    """The tenant used this key for a different request."""

    code: ClassVar[str] = "idempotency_key_reused"


class InvalidOperationError(StoreError):
    """An operation's own values break a rule; nothing was tried."""

    code: ClassVar[str] = "invalid_operation"


class RecordRefusedError(StoreError):
    """A constraint or trigger of the schema refused a row; the operation left nothing."""

    code: ClassVar[str] = "record_refused"


class AttestationImmutableError(StoreError):
    """Another attestation is already stored for the job; a stored one is never replaced."""

    code: ClassVar[str] = "attestation_immutable"


class AttestationUnboundError(StoreError):
    """Envelope, artifact, receipt, job and tenant do not belong together."""

    code: ClassVar[str] = "attestation_unbound"


class UnsafeDatabasePathError(StoreError):
    """The database, a side file or a directory above it may be in somebody else's hands."""

    code: ClassVar[str] = "unsafe_database_path"


class DatabaseLockedError(StoreError):
    """Another process holds the instance lock of this database."""

    code: ClassVar[str] = "database_locked"


class OpenRefusedError(StoreError):
    """The file is not a sound database of this store; it was not changed."""

    code: ClassVar[str] = "open_refused"


class BackupTargetError(StoreError):
    """A backup cannot be made under this name: it is taken, or not a place for files of ours."""

    code: ClassVar[str] = "backup_target"


class BackupUnsoundError(StoreError):
    """A backup was made and does not verify; it was thrown away. `findings` says why."""

    code: ClassVar[str] = "backup_unsound"

    def __init__(self, message: str, findings: Sequence[object]) -> None:
        super().__init__(message, findings=len(findings))
        self.findings = findings


class EvidenceUnreadableError(StoreError):
    """What was given as evidence kept elsewhere is none, or does not hold in itself."""

    code: ClassVar[str] = "evidence_unreadable"


class ForeignSchemaError(OpenRefusedError):
    """The file belongs to another program, or is no database at all."""

    code: ClassVar[str] = "foreign_schema"


class SchemaVersionError(OpenRefusedError):
    """The schema version is not one that this build can open."""

    code: ClassVar[str] = "schema_version"


class SchemaHistoryError(OpenRefusedError):
    """The migration history and `user_version` do not agree."""

    code: ClassVar[str] = "schema_history"


class SchemaMismatchError(OpenRefusedError):
    """A table, column, index or trigger of the claimed version is missing, extra or different."""

    code: ClassVar[str] = "schema_mismatch"


class DatabaseDamagedError(OpenRefusedError):
    """What the file holds breaks the rules of its own schema."""

    code: ClassVar[str] = "database_damaged"


class MigrationRefusedError(OpenRefusedError):
    """A row of an older version cannot be brought to the newest one; the file was not changed."""

    code: ClassVar[str] = "migration_refused"


class BindingRequiredError(OpenRefusedError):
    """The file holds attestations that have to be tested first, and no test was given."""

    code: ClassVar[str] = "binding_required"
