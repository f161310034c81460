"""The in-toto statement: what it holds, how it is read and checked, and how it is written."""

import hashlib
from typing import NamedTuple

from . import profile, receipt_rules
from .canonical import canonical, quote, refuse_unsafe_numbers
from .errors import (
    InvalidProfileFieldError,
    JsonEncodingError,
    PredicateSchemaVersionMismatchError,
    PredicateTypeMismatchError,
    StatementTooLargeError,
    StatementTypeMismatchError,
    SubjectDescriptorMismatchError,
)
from .fields import check_media_type, check_sha256, check_text
from .strictjson import Json, parse
from .typed import Cursor, read


class Subject(NamedTuple):
    name: str
    media_type: str
    digests: dict[str, str]


class Result(NamedTuple):
    name: str
    media_type: str
    size_bytes: int
    sha256: str


class Predicate(NamedTuple):
    schema_version: int
    execution_id: str
    tenant: str
    result: Result
    receipt: Json

    def __repr__(self) -> str:
        return f"Predicate(execution_id={self.execution_id!r}, result={self.result!r})"


class Statement(NamedTuple):
    """A typed statement; having one says nothing about its truth before `check_statement`."""

    statement_type: str
    subjects: tuple[Subject, ...]
    predicate_type: str
    predicate: Predicate

    def __repr__(self) -> str:
        return f"Statement(subjects={self.subjects!r}, predicate={self.predicate!r})"

    @property
    def receipt(self) -> dict[str, Json]:
        """The embedded receipt; call only after `check_statement`, which refuses other types."""
        receipt = self.predicate.receipt
        if not isinstance(receipt, dict):
            raise InvalidProfileFieldError(field="predicate.receipt")
        return receipt

    @property
    def outcome(self) -> str:
        return str(self.receipt["outcome"])

    @property
    def event_chain_complete(self) -> bool:
        chain = self.receipt["event_chain"]
        return isinstance(chain, dict) and chain["complete"] is True


def read_statement(data: bytes) -> Statement:
    """Decode statement JSON strictly: required members and types, unknown members ignored."""
    root = read(data, profile.STATEMENT_DOCUMENT)
    predicate = root.member("predicate")
    result = predicate.member("result")
    return Statement(
        statement_type=root.member("_type").string(),
        subjects=tuple(_read_subject(subject) for subject in root.member("subject").elements()),
        predicate_type=root.member("predicateType").string(),
        predicate=Predicate(
            schema_version=predicate.member("schemaVersion").unsigned(profile.U32_MAX),
            execution_id=predicate.member("executionId").string(),
            tenant=predicate.member("tenant").string(),
            result=Result(
                name=result.member("name").string(),
                media_type=result.member("mediaType").string(),
                size_bytes=result.member("sizeBytes").unsigned(profile.U64_MAX),
                sha256=result.member("sha256").string(),
            ),
            receipt=predicate.member("receipt").value,
        ),
    )


def _read_subject(subject: Cursor) -> Subject:
    return Subject(
        name=subject.member("name").string(),
        media_type=subject.member("mediaType").string(),
        digests=subject.member("digest").string_members(),
    )


def check_statement(statement: Statement) -> None:
    """Check everything a statement says about itself, in the verifier's order.

    Not checked: signatures, the artifact itself, and policy.
    """
    predicate = statement.predicate
    if statement.statement_type != profile.STATEMENT_TYPE:
        raise StatementTypeMismatchError
    if statement.predicate_type != profile.PREDICATE_TYPE:
        raise PredicateTypeMismatchError
    if predicate.schema_version != profile.SCHEMA_VERSION:
        raise PredicateSchemaVersionMismatchError
    if len(statement.subjects) != 1:
        raise InvalidProfileFieldError(field="subject")
    check_text(predicate.execution_id, profile.EXECUTION_ID_CHARS_MAX, "predicate.execution_id")
    check_text(predicate.tenant, profile.TENANT_CHARS_MAX, "predicate.tenant")
    receipt_rules.check_core(
        predicate.receipt, execution_id=predicate.execution_id, tenant=predicate.tenant
    )
    _check_descriptors(statement.subjects[0], predicate.result)


def _check_descriptors(subject: Subject, result: Result) -> None:
    check_text(subject.name, profile.NAME_CHARS_MAX, "subject.name")
    check_media_type(subject.media_type)
    if "sha256" not in subject.digests:
        raise InvalidProfileFieldError(field="subject.digest")
    check_sha256(subject.digests["sha256"], "subject.digest.sha256")
    check_text(result.name, profile.NAME_CHARS_MAX, "predicate.result.name")
    check_media_type(result.media_type)
    check_sha256(result.sha256, "predicate.result.sha256")
    signed_twice = (subject.name, subject.media_type, subject.digests["sha256"])
    if signed_twice != (result.name, result.media_type, result.sha256):
        raise SubjectDescriptorMismatchError


def build_statement(
    *,
    execution_id: str,
    tenant: str,
    subject_name: str,
    media_type: str,
    artifact: bytes,
    receipt_json: bytes,
) -> bytes:
    """Return the statement bytes for one artifact and the stored receipt text.

    Only the receipt's member order changes. The result has passed every check that a verifier
    makes on a statement; number_out_of_range and statement_too_large are possible besides.
    """
    statement = compose(
        execution_id=execution_id,
        tenant=tenant,
        subject_name=subject_name,
        media_type=media_type,
        artifact=artifact,
        receipt_json=receipt_json,
    )
    check_signable(statement)
    return statement


def compose(
    *,
    execution_id: str,
    tenant: str,
    subject_name: str,
    media_type: str,
    artifact: bytes,
    receipt_json: bytes,
) -> bytes:
    """Return what `build_statement` does, before the checks of the whole that signing makes."""
    if len(receipt_json) > profile.STATEMENT_BYTES_MAX:
        raise StatementTooLargeError(max_bytes=profile.STATEMENT_BYTES_MAX)
    receipt = parse(receipt_json, profile.RECEIPT_DOCUMENT)
    receipt_rules.check_complexity(receipt)
    refuse_unsafe_numbers(receipt)
    digest = quote(hashlib.sha256(artifact).hexdigest())
    name, media = quote(subject_name), quote(media_type)
    text = (
        f'{{"_type":{quote(profile.STATEMENT_TYPE)},'
        f'"subject":[{{"name":{name},"digest":{{"sha256":{digest}}},"mediaType":{media}}}],'
        f'"predicateType":{quote(profile.PREDICATE_TYPE)},'
        f'"predicate":{{"schemaVersion":{profile.SCHEMA_VERSION},'
        f'"executionId":{quote(execution_id)},"tenant":{quote(tenant)},'
        f'"result":{{"name":{name},"mediaType":{media},'
        f'"sizeBytes":{len(artifact)},"sha256":{digest}}},'
        f'"receipt":{canonical(receipt).decode()}}}}}'
    )
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise JsonEncodingError(document=profile.STATEMENT_DOCUMENT) from None


def check_size(statement: bytes) -> None:
    if len(statement) > profile.STATEMENT_BYTES_MAX:
        raise StatementTooLargeError(max_bytes=profile.STATEMENT_BYTES_MAX)


def check_signable(statement: bytes) -> None:
    """Refuse to sign what a verifier would refuse, or a number outside what Rookhold signs."""
    check_size(statement)
    typed = read_statement(statement)
    check_statement(typed)
    refuse_unsafe_numbers(typed.predicate.receipt)
