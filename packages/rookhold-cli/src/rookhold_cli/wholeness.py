"""What of a finished job was not kept or not recorded, as its receipt tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_RESTARTED: Final = "server_restarted"
_STREAMS: Final = ("stdout", "stderr")


def lost_its_gateway(receipt: Mapping[str, Any]) -> bool:
    """Say whether the gateway ended while the job ran: then it told nothing of the sandbox."""
    return _RESTARTED in (receipt.get("terminal_reason"), receipt.get("killed_by"))


def output(receipt: Mapping[str, Any]) -> str | None:
    """Say what of the output is missing, in bytes where they are known; None if nothing is."""
    kept = receipt.get("output") or {}
    missing = [words for stream in _STREAMS if (words := _stream(kept, stream))]
    if not kept.get("truncated"):
        return f"not kept whole: {', '.join(missing)}" if missing else None
    return "cut at its limit" + (f": {', '.join(missing)}" if missing else "")


def evidence(receipt: Mapping[str, Any]) -> str | None:
    """Say that the receipt does not tell everything; None if it does, or does not say."""
    if receipt.get("evidence_complete") is not False:
        return None
    return "incomplete: not all that the job did was recorded"


def _stream(kept: Mapping[str, Any], stream: str) -> str | None:
    count, seen = kept.get(f"{stream}_bytes"), kept.get(f"{stream}_bytes_seen")
    if not isinstance(count, int) or not isinstance(seen, int) or count >= seen:
        return None
    return f"{count} of {seen} bytes of {stream} kept"
