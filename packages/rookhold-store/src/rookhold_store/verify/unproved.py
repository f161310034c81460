"""What no look at a store alone can show, said as plainly as what was found."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = (
    "that no whole job is missing: a job that was removed together with its account leaves no gap",
    "that the history of an unfinished job was not shortened: nothing states its length yet",
    "that not everything was rewritten consistently: whoever can write the file can also compute"
    " its digests, and signatures are not checked here (`rookhold verify` does, offline)",
    "that what no digest covers is what it was: the text of an idempotency key, when and how often"
    " an attestation was tried, given up, made or quarantined, and why, when a removal began, by"
    " how much less memory than it asked for a job was admitted, and how much of the reserve of an"
    " unfinished job is used up",
    "that what is left of a job whose removal has begun is what it was: the events that would tell"
    " are gone",
)
REMEDY: Final = (
    "A receipt, an envelope or an event hash that was kept elsewhere settles the first three for"
    " its job: give it with --receipt."
)

# Columns that may be changed to another value of their kind without a trace.
UNBOUND: Final = frozenset(
    {
        "attestation_outbox.attempt_count",
        "attestation_outbox.failed_at_ms",
        "attestation_outbox.failure_code",
        "attestation_outbox.failure_profile",
        "attestation_outbox.next_attempt_ms",
        "attestation_quarantine.at_ms",
        "attestation_quarantine.reason",
        "idempotency_keys.idempotency_key",
        "job_attestations.created_at_ms",
        "retention_tombstones.marked_at_ms",
        "schema_migrations.applied_at_ms",
    }
)
