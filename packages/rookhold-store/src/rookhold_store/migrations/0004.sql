-- Version 4: attestations, the queue of those still to be made, and a place for those that must not
-- be served. Every job with a receipt is queued. The accounting repair, which follows this text in
-- the same transaction, reserves 20 MiB for each and ends the accounting of revision 1.

CREATE TABLE attestation_quarantine (
  job_id TEXT NOT NULL PRIMARY KEY REFERENCES jobs (job_id) ON DELETE CASCADE,
  at_ms INTEGER NOT NULL CHECK (at_ms >= 0),
  reason TEXT NOT NULL CHECK (trim(reason, char(9, 10, 11, 12, 13, 32)) <> ''),
  result_sha256 TEXT NOT NULL CHECK (length(result_sha256) = 64 AND result_sha256 NOT GLOB '*[^0-9a-f]*'),
  envelope_sha256 TEXT NOT NULL
    CHECK (length(envelope_sha256) = 64 AND envelope_sha256 NOT GLOB '*[^0-9a-f]*'),
  result_artifact BLOB NOT NULL CHECK (length(result_artifact) BETWEEN 1 AND 16777216),
  envelope_json BLOB NOT NULL CHECK (length(envelope_json) BETWEEN 1 AND 2097152)
) STRICT;

CREATE TRIGGER attestation_quarantine_no_replace BEFORE INSERT ON attestation_quarantine
WHEN EXISTS (SELECT 1 FROM attestation_quarantine WHERE job_id = NEW.job_id)
BEGIN SELECT RAISE(ABORT, 'attestation_quarantine: immutable'); END;

CREATE TRIGGER attestation_quarantine_no_update BEFORE UPDATE ON attestation_quarantine
BEGIN SELECT RAISE(ABORT, 'attestation_quarantine: immutable'); END;

CREATE TRIGGER attestation_quarantine_no_delete BEFORE DELETE ON attestation_quarantine
WHEN EXISTS (SELECT 1 FROM jobs WHERE job_id = OLD.job_id)
BEGIN SELECT RAISE(ABORT, 'attestation_quarantine: goes with its job'); END;

CREATE TABLE job_attestations (
  job_id TEXT NOT NULL PRIMARY KEY REFERENCES jobs (job_id) ON DELETE CASCADE,
  created_at_ms INTEGER NOT NULL CHECK (created_at_ms >= 0),
  key_id TEXT NOT NULL CHECK (length(key_id) BETWEEN 1 AND 256),
  receipt_sha256 TEXT NOT NULL
    CHECK (length(receipt_sha256) = 64 AND receipt_sha256 NOT GLOB '*[^0-9a-f]*'),
  result_media_type TEXT NOT NULL CHECK (length(result_media_type) BETWEEN 1 AND 255),
  result_sha256 TEXT NOT NULL CHECK (length(result_sha256) = 64 AND result_sha256 NOT GLOB '*[^0-9a-f]*'),
  envelope_sha256 TEXT NOT NULL
    CHECK (length(envelope_sha256) = 64 AND envelope_sha256 NOT GLOB '*[^0-9a-f]*'),
  result_artifact BLOB NOT NULL CHECK (length(result_artifact) BETWEEN 1 AND 16777216),
  envelope_json BLOB NOT NULL CHECK (length(envelope_json) BETWEEN 1 AND 2097152)
) STRICT;

CREATE TRIGGER job_attestations_insert BEFORE INSERT ON job_attestations
BEGIN
  SELECT CASE
    WHEN EXISTS (SELECT 1 FROM job_attestations WHERE job_id = NEW.job_id)
      THEN RAISE(ABORT, 'job_attestations: immutable')
    WHEN EXISTS (SELECT 1 FROM attestation_outbox WHERE job_id = NEW.job_id)
      THEN RAISE(ABORT, 'job_attestations: never beside an outbox row')
    WHEN EXISTS (SELECT 1 FROM jobs WHERE job_id = NEW.job_id AND status IN ('queued', 'running'))
      THEN RAISE(ABORT, 'job_attestations: only of a terminal job')
  END;
END;

CREATE TRIGGER job_attestations_no_update BEFORE UPDATE ON job_attestations
BEGIN SELECT RAISE(ABORT, 'job_attestations: immutable'); END;

CREATE TRIGGER job_attestations_no_delete BEFORE DELETE ON job_attestations
WHEN EXISTS (SELECT 1 FROM jobs WHERE job_id = OLD.job_id)
  AND NOT EXISTS (SELECT 1 FROM retention_tombstones WHERE job_id = OLD.job_id)
  AND NOT EXISTS (SELECT 1 FROM attestation_quarantine WHERE job_id = OLD.job_id
    AND envelope_sha256 = OLD.envelope_sha256 AND result_sha256 = OLD.result_sha256)
BEGIN SELECT RAISE(ABORT, 'job_attestations: goes with its job, or to the quarantine'); END;

CREATE TABLE attestation_outbox (
  job_id TEXT NOT NULL PRIMARY KEY REFERENCES jobs (job_id) ON DELETE CASCADE,
  pending_since_ms INTEGER NOT NULL CHECK (pending_since_ms >= 0),
  attempt_count INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
  next_attempt_ms INTEGER NOT NULL CHECK (next_attempt_ms >= 0),
  failed_at_ms INTEGER CHECK (failed_at_ms >= 0),
  failure_code TEXT CHECK (trim(failure_code, char(9, 10, 11, 12, 13, 32)) <> ''),
  failure_profile TEXT CHECK (trim(failure_profile, char(9, 10, 11, 12, 13, 32)) <> ''),
  CHECK ((failed_at_ms IS NULL) = (failure_code IS NULL)
    AND (failed_at_ms IS NULL) = (failure_profile IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX attestation_outbox_due ON attestation_outbox (next_attempt_ms, pending_since_ms, job_id)
  WHERE failed_at_ms IS NULL;

CREATE TRIGGER attestation_outbox_insert BEFORE INSERT ON attestation_outbox
BEGIN
  SELECT CASE
    WHEN EXISTS (SELECT 1 FROM attestation_outbox WHERE job_id = NEW.job_id)
      THEN RAISE(ABORT, 'attestation_outbox: this job is listed')
    WHEN EXISTS (SELECT 1 FROM job_attestations WHERE job_id = NEW.job_id)
      THEN RAISE(ABORT, 'attestation_outbox: never beside an attestation')
    WHEN EXISTS (SELECT 1 FROM jobs WHERE job_id = NEW.job_id AND status IN ('queued', 'running'))
      THEN RAISE(ABORT, 'attestation_outbox: only a terminal job is listed')
  END;
END;

CREATE TRIGGER attestation_outbox_identity BEFORE UPDATE OF job_id, pending_since_ms ON attestation_outbox
BEGIN SELECT RAISE(ABORT, 'attestation_outbox: job and first time are immutable'); END;

INSERT INTO attestation_outbox (job_id, pending_since_ms, attempt_count, next_attempt_ms)
SELECT job_id, finished_at_ms, 0, finished_at_ms FROM jobs
WHERE finished_at_ms IS NOT NULL AND receipt_json IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM retention_tombstones t WHERE t.job_id = jobs.job_id);
