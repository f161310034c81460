"""What a receipt must be inside an attestation: bounded, self-consistent, bound to its job."""

from . import profile
from .canonical import number_text, receipt_digest
from .errors import InvalidProfileFieldError, ReceiptTooComplexError
from .fields import is_sha256
from .strictjson import Json
from .typed import is_unsigned


def check_complexity(receipt: Json) -> None:
    """Bound depth, node count and an upper estimate of the written size, without recursion.

    The estimate takes six bytes for each byte of text, the worst that escaping can do.
    """
    nodes = 1
    estimate = 0
    waiting: list[tuple[Json, int]] = [(receipt, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > profile.RECEIPT_DEPTH_MAX:
            raise InvalidProfileFieldError(field="predicate.receipt.depth")
        if isinstance(value, dict):
            nodes += len(value)
            estimate += 2 + len(value) + sum(6 * _bytes(name) + 3 for name in value)
            waiting.extend((member, depth + 1) for member in value.values())
        elif isinstance(value, list):
            nodes += len(value)
            estimate += 2 + len(value)
            waiting.extend((element, depth + 1) for element in value)
        else:
            estimate += _scalar_estimate(value)
        if nodes > profile.RECEIPT_NODES_MAX or estimate > profile.RECEIPT_ESTIMATED_BYTES_MAX:
            raise ReceiptTooComplexError(
                max_nodes=profile.RECEIPT_NODES_MAX,
                max_bytes=profile.RECEIPT_ESTIMATED_BYTES_MAX,
            )


def _scalar_estimate(value: str | bool | int | float | None) -> int:
    match value:
        case str():
            return 6 * _bytes(value) + 2
        case None:
            return 4
        case bool():
            return 5
        case number:
            return len(number_text(number))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def check_core(receipt: Json, *, execution_id: str, tenant: str) -> None:
    """Check complexity, the members every attested receipt has, and the digest, in that order.

    Not checked: whether what the receipt reports is true, and members that the profile does not
    name. They are covered by the digest all the same.
    """
    if not isinstance(receipt, dict):
        raise InvalidProfileFieldError(field="predicate.receipt")
    check_complexity(receipt)
    outcome = receipt.get("outcome")
    digest = receipt.get("receipt_sha256")
    rules = {
        "version": _is_one(receipt.get("version")),
        "job_id": receipt.get("job_id") == execution_id,
        "tenant": "tenant" not in receipt or receipt["tenant"] == tenant,
        "outcome": isinstance(outcome, str) and outcome in profile.TERMINAL_STATUSES,
        "receipt_sha256": is_sha256(digest),
    }
    _demand(rules, "predicate.receipt")
    _check_event_chain(receipt.get("event_chain"))
    if receipt_digest(receipt) != digest:
        raise InvalidProfileFieldError(field="predicate.receipt.receipt_sha256")


def _check_event_chain(chain: Json) -> None:
    if not isinstance(chain, dict):
        raise InvalidProfileFieldError(field="predicate.receipt.event_chain")
    rules = {
        "version": _is_one(chain.get("version")),
        "events": is_unsigned(chain.get("events"), profile.U64_MAX),
        "complete": isinstance(chain.get("complete"), bool),
        "head": is_sha256(chain.get("head")),
    }
    _demand(rules, "predicate.receipt.event_chain")


def _demand(rules: dict[str, bool], prefix: str) -> None:
    for name, kept in rules.items():
        if not kept:
            raise InvalidProfileFieldError(field=f"{prefix}.{name}")


def _is_one(value: Json) -> bool:
    return is_unsigned(value, 1) and value == 1
