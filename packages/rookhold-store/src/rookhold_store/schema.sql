-- The whole of schema v4, as a reader should see it. A fresh file is made from this text; the steps
-- from older versions must arrive at exactly these objects, because an open compares them word by word.
-- Every BEFORE INSERT trigger that refuses an existing key is there because INSERT OR REPLACE would
-- otherwise delete the old row without firing its delete trigger (recursive_triggers is per connection).

CREATE TABLE schema_migrations (
  version INTEGER PRIMARY KEY CHECK (version >= 1),
  applied_at_ms INTEGER NOT NULL CHECK (applied_at_ms >= 0)
) STRICT;

CREATE TRIGGER schema_migrations_in_order BEFORE INSERT ON schema_migrations
WHEN NEW.version IS NOT (SELECT coalesce(max(version), 0) + 1 FROM schema_migrations)
BEGIN SELECT RAISE(ABORT, 'schema_migrations: versions are added one by one'); END;

CREATE TRIGGER schema_migrations_no_update BEFORE UPDATE ON schema_migrations
BEGIN SELECT RAISE(ABORT, 'schema_migrations: append-only'); END;

CREATE TRIGGER schema_migrations_no_delete BEFORE DELETE ON schema_migrations
BEGIN SELECT RAISE(ABORT, 'schema_migrations: append-only'); END;

CREATE TABLE store_meta (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  accounting_revision INTEGER NOT NULL CHECK (accounting_revision IN (1, 2))
) STRICT;

CREATE TRIGGER store_meta_forward BEFORE UPDATE ON store_meta
WHEN NEW.id IS NOT OLD.id OR NEW.accounting_revision < OLD.accounting_revision
BEGIN SELECT RAISE(ABORT, 'store_meta: a revision never goes back'); END;

CREATE TRIGGER store_meta_single BEFORE INSERT ON store_meta
WHEN EXISTS (SELECT 1 FROM store_meta)
BEGIN SELECT RAISE(ABORT, 'store_meta: one row'); END;

CREATE TRIGGER store_meta_no_delete BEFORE DELETE ON store_meta
BEGIN SELECT RAISE(ABORT, 'store_meta: one row'); END;

-- Jobs. The small columns come first: a row's JSON may fill megabytes of overflow pages, which a read
-- of what stands before them never visits.

CREATE TABLE jobs (
  job_id TEXT NOT NULL PRIMARY KEY CHECK (trim(job_id, char(9, 10, 11, 12, 13, 32)) <> ''),
  tenant TEXT NOT NULL CHECK (trim(tenant, char(9, 10, 11, 12, 13, 32)) <> ''),
  language TEXT NOT NULL CHECK (trim(language, char(9, 10, 11, 12, 13, 32)) <> ''),
  status TEXT NOT NULL DEFAULT 'queued' CHECK (status IN (
    'queued', 'running', 'succeeded', 'failed', 'timed_out', 'oom_killed', 'cancelled', 'error')),
  admitted_mem_mb INTEGER NOT NULL CHECK (admitted_mem_mb BETWEEN 16 AND 4096),
  created_at_ms INTEGER NOT NULL CHECK (created_at_ms >= 0),
  started_at_ms INTEGER CHECK (started_at_ms >= 0),
  finished_at_ms INTEGER CHECK (finished_at_ms >= 0),
  exit_code INTEGER CHECK (exit_code BETWEEN -2147483648 AND 2147483647),
  spec_json TEXT NOT NULL CHECK (json_valid(spec_json)),
  effective_spec_json TEXT CHECK (json_valid(effective_spec_json)),
  receipt_json TEXT CHECK (json_valid(receipt_json)),
  UNIQUE (tenant, job_id),
  CHECK (CASE status
    WHEN 'queued' THEN started_at_ms IS NULL AND finished_at_ms IS NULL
    WHEN 'running' THEN started_at_ms IS NOT NULL AND finished_at_ms IS NULL
    ELSE finished_at_ms IS NOT NULL END)
) STRICT;

CREATE INDEX jobs_by_id
  ON jobs (job_id, tenant, language, status, created_at_ms, started_at_ms, finished_at_ms, exit_code);
CREATE INDEX jobs_by_tenant
  ON jobs (tenant, created_at_ms, job_id, language, status, started_at_ms, finished_at_ms, exit_code);
CREATE INDEX jobs_by_tenant_status
  ON jobs (tenant, status, created_at_ms, job_id, language, started_at_ms, finished_at_ms, exit_code);
CREATE INDEX jobs_by_tenant_language
  ON jobs (tenant, language, created_at_ms, job_id, status, started_at_ms, finished_at_ms, exit_code);
CREATE INDEX jobs_by_tenant_status_language
  ON jobs (tenant, status, language, created_at_ms, job_id, started_at_ms, finished_at_ms, exit_code);
CREATE INDEX jobs_by_creation
  ON jobs (created_at_ms, job_id, tenant, language, status, started_at_ms, finished_at_ms, exit_code);
CREATE INDEX jobs_unfinished ON jobs (status, created_at_ms, job_id) WHERE finished_at_ms IS NULL;
CREATE INDEX jobs_finished ON jobs (finished_at_ms, job_id) WHERE finished_at_ms IS NOT NULL;

CREATE TRIGGER jobs_no_replace BEFORE INSERT ON jobs
WHEN EXISTS (SELECT 1 FROM jobs WHERE job_id = NEW.job_id)
BEGIN SELECT RAISE(ABORT, 'jobs: this job exists'); END;

CREATE TRIGGER jobs_identity
BEFORE UPDATE OF job_id, tenant, language, spec_json, created_at_ms, admitted_mem_mb ON jobs
BEGIN SELECT RAISE(ABORT, 'jobs: identity, spec, creation time and admitted memory are immutable'); END;

CREATE TRIGGER jobs_transition
BEFORE UPDATE OF status, started_at_ms, finished_at_ms, exit_code, effective_spec_json ON jobs
BEGIN
  SELECT CASE
    WHEN OLD.status NOT IN ('queued', 'running') THEN RAISE(ABORT, 'jobs: a terminal job is final')
    WHEN OLD.status = 'running' AND NEW.status = 'queued' THEN RAISE(ABORT, 'jobs: never queued again')
    WHEN OLD.started_at_ms IS NOT NULL AND NEW.started_at_ms IS NOT OLD.started_at_ms
      THEN RAISE(ABORT, 'jobs: a start time is set once')
  END;
END;

CREATE TRIGGER jobs_receipt BEFORE UPDATE OF receipt_json ON jobs
WHEN OLD.receipt_json IS NOT NULL AND NOT (
  NEW.receipt_json IS NULL AND EXISTS (SELECT 1 FROM retention_tombstones WHERE job_id = OLD.job_id))
BEGIN SELECT RAISE(ABORT, 'jobs: a receipt is immutable'); END;

CREATE TRIGGER jobs_no_delete_unfinished BEFORE DELETE ON jobs
WHEN OLD.status IN ('queued', 'running')
BEGIN SELECT RAISE(ABORT, 'jobs: an unfinished job is not deleted'); END;

CREATE TABLE retention_tombstones (
  job_id TEXT NOT NULL PRIMARY KEY REFERENCES jobs (job_id) ON DELETE CASCADE,
  marked_at_ms INTEGER NOT NULL CHECK (marked_at_ms >= 0)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER retention_tombstones_insert BEFORE INSERT ON retention_tombstones
BEGIN
  SELECT CASE
    WHEN EXISTS (SELECT 1 FROM retention_tombstones WHERE job_id = NEW.job_id)
      THEN RAISE(ABORT, 'retention_tombstones: this job is marked')
    WHEN (SELECT status FROM jobs WHERE job_id = NEW.job_id) IN ('queued', 'running')
      THEN RAISE(ABORT, 'retention_tombstones: only a terminal job is marked')
  END;
END;

CREATE TRIGGER retention_tombstones_no_update BEFORE UPDATE ON retention_tombstones
BEGIN SELECT RAISE(ABORT, 'retention_tombstones: immutable'); END;

CREATE TRIGGER retention_tombstones_no_delete BEFORE DELETE ON retention_tombstones
WHEN EXISTS (SELECT 1 FROM jobs WHERE job_id = OLD.job_id)
BEGIN SELECT RAISE(ABORT, 'retention_tombstones: goes with its job'); END;

-- Events. In a cascade the job's row is already gone when the delete triggers here run, which is how
-- they tell a whole job's removal from an attempt to shorten its history.

CREATE TABLE events (
  job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
  seq INTEGER NOT NULL CHECK (seq >= 1),
  ts_ms INTEGER NOT NULL CHECK (ts_ms >= 0),
  kind TEXT NOT NULL CHECK (trim(kind, char(9, 10, 11, 12, 13, 32)) <> ''),
  data_json TEXT NOT NULL CHECK (json_valid(data_json)),
  prev_hash TEXT NOT NULL DEFAULT '',
  event_hash TEXT NOT NULL DEFAULT '',
  hash_version INTEGER NOT NULL CHECK (hash_version IN (0, 1)),
  PRIMARY KEY (job_id, seq),
  CHECK (CASE hash_version
    WHEN 0 THEN prev_hash = '' AND event_hash = ''
    ELSE length(event_hash) = 64 AND event_hash NOT GLOB '*[^0-9a-f]*'
      AND (prev_hash = '' OR (length(prev_hash) = 64 AND prev_hash NOT GLOB '*[^0-9a-f]*')) END)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER events_append BEFORE INSERT ON events
BEGIN
  SELECT CASE
    WHEN NEW.hash_version IS NOT 1 THEN RAISE(ABORT, 'events: a new event is hashed')
    WHEN (SELECT status FROM jobs WHERE job_id = NEW.job_id) NOT IN ('queued', 'running')
      THEN RAISE(ABORT, 'events: the job is terminal')
    WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM events WHERE job_id = NEW.job_id)
      THEN RAISE(ABORT, 'events: seq is one more than the last')
    WHEN NEW.prev_hash IS NOT coalesce(
      (SELECT event_hash FROM events WHERE job_id = NEW.job_id AND seq = NEW.seq - 1), '')
      THEN RAISE(ABORT, 'events: prev_hash is the hash of the event before')
  END;
END;

CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events: immutable'); END;

CREATE TRIGGER events_no_delete BEFORE DELETE ON events
WHEN EXISTS (SELECT 1 FROM jobs WHERE job_id = OLD.job_id)
  AND NOT EXISTS (SELECT 1 FROM retention_tombstones WHERE job_id = OLD.job_id)
BEGIN SELECT RAISE(ABORT, 'events: a retained history is not shortened'); END;

-- Attestations and the queue of those still to be made.

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

CREATE TABLE idempotency_keys (
  tenant TEXT NOT NULL,
  idempotency_key TEXT NOT NULL CHECK (length(idempotency_key) BETWEEN 1 AND 128),
  request_sha256 TEXT NOT NULL
    CHECK (length(request_sha256) = 64 AND request_sha256 NOT GLOB '*[^0-9a-f]*'),
  job_id TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL CHECK (created_at_ms >= 0),
  PRIMARY KEY (tenant, idempotency_key),
  FOREIGN KEY (tenant, job_id) REFERENCES jobs (tenant, job_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_by_job ON idempotency_keys (job_id);

CREATE TRIGGER idempotency_keys_no_replace BEFORE INSERT ON idempotency_keys
WHEN EXISTS (SELECT 1 FROM idempotency_keys
  WHERE tenant = NEW.tenant AND idempotency_key = NEW.idempotency_key)
BEGIN SELECT RAISE(ABORT, 'idempotency_keys: immutable'); END;

CREATE TRIGGER idempotency_keys_no_update BEFORE UPDATE ON idempotency_keys
BEGIN SELECT RAISE(ABORT, 'idempotency_keys: immutable'); END;

CREATE TRIGGER idempotency_keys_no_delete BEFORE DELETE ON idempotency_keys
WHEN EXISTS (SELECT 1 FROM jobs WHERE job_id = OLD.job_id)
  AND NOT EXISTS (SELECT 1 FROM retention_tombstones WHERE job_id = OLD.job_id)
BEGIN SELECT RAISE(ABORT, 'idempotency_keys: goes with its job'); END;

-- The storage ledger. The store writes one row per job; the sums follow by trigger, so that no code
-- path can change a charge and forget a sum.

CREATE TABLE storage_usage_total (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  charged_bytes INTEGER NOT NULL CHECK (charged_bytes >= 0)
) STRICT;

CREATE TRIGGER storage_usage_total_single BEFORE INSERT ON storage_usage_total
WHEN EXISTS (SELECT 1 FROM storage_usage_total)
BEGIN SELECT RAISE(ABORT, 'storage_usage_total: one row'); END;

CREATE TRIGGER storage_usage_total_no_delete BEFORE DELETE ON storage_usage_total
BEGIN SELECT RAISE(ABORT, 'storage_usage_total: one row'); END;

CREATE TABLE tenant_storage_usage (
  tenant TEXT NOT NULL PRIMARY KEY CHECK (trim(tenant, char(9, 10, 11, 12, 13, 32)) <> ''),
  charged_bytes INTEGER NOT NULL CHECK (charged_bytes >= 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_storage_usage (
  job_id TEXT NOT NULL PRIMARY KEY,
  tenant TEXT NOT NULL,
  retained_bytes INTEGER NOT NULL CHECK (retained_bytes >= 0),
  reserved_bytes INTEGER NOT NULL CHECK (reserved_bytes >= 0),
  requested_mem_mb INTEGER NOT NULL CHECK (requested_mem_mb BETWEEN 16 AND 4096),
  FOREIGN KEY (tenant, job_id) REFERENCES jobs (tenant, job_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TRIGGER job_storage_usage_insert BEFORE INSERT ON job_storage_usage
BEGIN
  SELECT CASE
    WHEN EXISTS (SELECT 1 FROM job_storage_usage WHERE job_id = NEW.job_id)
      THEN RAISE(ABORT, 'job_storage_usage: this job is charged')
    WHEN EXISTS (SELECT 1 FROM jobs
      WHERE job_id = NEW.job_id AND admitted_mem_mb IS NOT NEW.requested_mem_mb)
      THEN RAISE(ABORT, 'job_storage_usage: memory is what the job was admitted with')
  END;
END;

CREATE TRIGGER job_storage_usage_identity
BEFORE UPDATE OF job_id, tenant, requested_mem_mb ON job_storage_usage
BEGIN SELECT RAISE(ABORT, 'job_storage_usage: identity is immutable'); END;

CREATE TRIGGER job_storage_usage_no_delete BEFORE DELETE ON job_storage_usage
WHEN EXISTS (SELECT 1 FROM jobs WHERE job_id = OLD.job_id)
BEGIN SELECT RAISE(ABORT, 'job_storage_usage: goes with its job'); END;

CREATE TRIGGER job_storage_usage_added AFTER INSERT ON job_storage_usage
BEGIN
  UPDATE storage_usage_total SET charged_bytes = charged_bytes + NEW.retained_bytes + NEW.reserved_bytes;
  INSERT INTO tenant_storage_usage (tenant, charged_bytes)
    VALUES (NEW.tenant, NEW.retained_bytes + NEW.reserved_bytes)
    ON CONFLICT (tenant) DO UPDATE SET charged_bytes = charged_bytes + excluded.charged_bytes;
END;

CREATE TRIGGER job_storage_usage_changed
AFTER UPDATE OF retained_bytes, reserved_bytes ON job_storage_usage
WHEN NEW.retained_bytes + NEW.reserved_bytes <> OLD.retained_bytes + OLD.reserved_bytes
BEGIN
  UPDATE storage_usage_total SET charged_bytes = charged_bytes
    + NEW.retained_bytes + NEW.reserved_bytes - OLD.retained_bytes - OLD.reserved_bytes;
  UPDATE tenant_storage_usage SET charged_bytes = charged_bytes
    + NEW.retained_bytes + NEW.reserved_bytes - OLD.retained_bytes - OLD.reserved_bytes
    WHERE tenant = NEW.tenant;
END;

CREATE TRIGGER job_storage_usage_removed AFTER DELETE ON job_storage_usage
BEGIN
  UPDATE storage_usage_total SET charged_bytes = charged_bytes - OLD.retained_bytes - OLD.reserved_bytes;
  UPDATE tenant_storage_usage SET charged_bytes = charged_bytes - OLD.retained_bytes - OLD.reserved_bytes
    WHERE tenant = OLD.tenant;
  DELETE FROM tenant_storage_usage WHERE tenant = OLD.tenant AND charged_bytes = 0;
END;
