"""Evidence that was kept outside the store, which a store cannot take back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rookhold_store.verify.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rookhold_store.verify.attestations import Hanging
    from rookhold_store.verify.history import History
    from rookhold_store.verify.jobs import Job


class Kept(Struct, frozen=True, kw_only=True):
    """What somebody else remembers of a job; whatever is None was not remembered.

    `head` is the hash of the event `seq`: the last one then, not necessarily now.
    """

    job_id: str
    seq: int | None = None
    head: str | None = None
    receipt_sha256: str | None = None
    result_sha256: str | None = None
    envelope_sha256: str | None = None

    def watch(self, history: History) -> None:
        """Have the hash of the remembered event noted as the history goes by."""
        if self.seq is not None:
            history.noted.setdefault(self.seq, None)

    def compare(
        self, job: Job, history: History, receipt: Mapping[str, Any], hanging: Hanging
    ) -> Iterator[Finding]:
        """Yield where the store says otherwise."""
        if self.seq is not None:
            if self.seq > history.seq:
                yield self._find(
                    "events.seq",
                    f"the history ends at {history.seq}, before the one kept",
                    self.seq,
                )
            elif history.noted.get(self.seq) != self.head:
                yield self._find("events.event_hash", "is not the one that was kept", self.seq)
        if self.receipt_sha256 is not None and receipt.get("receipt_sha256") != self.receipt_sha256:
            absent = job.receipt_json is None
            yield self._find(
                "jobs.receipt_json",
                "is null, but a receipt was kept" if absent else "is not the one that was kept",
            )
        for column, wanted in (
            ("result_sha256", self.result_sha256),
            ("envelope_sha256", self.envelope_sha256),
        ):
            if wanted is not None and hanging.digests.get(column) != wanted:
                yield self._find(f"job_attestations.{column}", "is not the one that was kept")

    def _find(self, place: str, problem: str, seq: int | None = None) -> Finding:
        return Finding(place=place, problem=problem, job_id=self.job_id, seq=seq, kept=True)
