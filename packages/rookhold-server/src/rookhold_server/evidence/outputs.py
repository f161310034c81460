"""The requested outputs: what came back is re-checked, what did not is named with a reason."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rookhold_exec.executor import CollectedOutput, UncollectedOutput
from rookhold_types.limits import OUTPUT_FILE_BYTES_MAX, OUTPUT_FILES_BYTES_MAX
from rookhold_types.states import KilledBy
from rookhold_types.violations import OutputReason, Rule

if TYPE_CHECKING:
    from collections.abc import Sequence


class Collection(Struct, frozen=True):
    """In the order in which the outputs were requested."""

    good: tuple[CollectedOutput, ...]
    lost: tuple[UncollectedOutput, ...]


def check_collection(
    requested: Sequence[str],
    collected: Sequence[CollectedOutput],
    uncollected: Sequence[UncollectedOutput],
) -> Collection:
    """Hold the executor's answer to the request; what it adds is dropped, what it skips missing."""
    contents = {output.path: output for output in reversed(collected)}
    reasons = {output.path: output.reason for output in uncollected}
    good: list[CollectedOutput] = []
    lost: list[UncollectedOutput] = []
    total = 0
    for path in requested:
        output = contents.get(path)
        if path in reasons or output is None:
            reason = _known(reasons.get(path, OutputReason.MISSING))
        elif len(output.content) > OUTPUT_FILE_BYTES_MAX:
            reason = OutputReason.TOO_LARGE
        elif total + len(output.content) > OUTPUT_FILES_BYTES_MAX:
            reason = OutputReason.TOTAL_TOO_LARGE
        else:
            total += len(output.content)
            good.append(output)
            continue
        lost.append(UncollectedOutput(path, reason))
    return Collection(tuple(good), tuple(lost))


def _known(reason: str) -> str:
    """Only reasons of ours reach a tenant, whatever a provider wrote."""
    return reason if reason in set(OutputReason) else OutputReason.UNREADABLE


def artifact_event(output: CollectedOutput) -> dict[str, Any]:
    return {
        "path": output.path,
        "content_base64": base64.b64encode(output.content).decode("ascii"),
        "size_bytes": len(output.content),
        "sha256": hashlib.sha256(output.content).hexdigest(),
    }


def collection_failed(lost: Sequence[UncollectedOutput]) -> dict[str, Any]:
    """The one violation that names every output that did not come back."""
    return {
        "rule": Rule.ARTIFACT_COLLECTION_FAILED,
        "detail": {
            "code": KilledBy.REQUESTED_OUTPUT_UNAVAILABLE,
            "outputs": [{"path": output.path, "reason": output.reason} for output in lost],
        },
    }
