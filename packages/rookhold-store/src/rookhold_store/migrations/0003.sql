-- Version 3: the memory that a job was admitted with, idempotency keys, the storage ledger, tombstones
-- and the covering indexes. No row is put in order any more: one that breaks a rule stops the step.

DROP TRIGGER jobs_no_replace;
DROP TRIGGER jobs_identity;
DROP TRIGGER jobs_transition;
DROP TRIGGER jobs_receipt;
DROP TRIGGER jobs_no_delete_unfinished;
DROP TRIGGER events_no_delete;
ALTER TABLE jobs RENAME TO jobs_v2;

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

-- What the spec asks for, within the bounds of every job; 256 where it asks for nothing whole.
INSERT INTO jobs (admitted_mem_mb, job_id, tenant, language, status, created_at_ms, started_at_ms,
  finished_at_ms, exit_code, spec_json, effective_spec_json, receipt_json)
SELECT CASE WHEN json_type(spec_json, '$.limits.mem_mb') = 'integer'
    THEN min(4096, max(16, json_extract(spec_json, '$.limits.mem_mb'))) ELSE 256 END,
  job_id, tenant, language, status, created_at_ms, started_at_ms, finished_at_ms,
  exit_code, spec_json, effective_spec_json, receipt_json
FROM jobs_v2 ORDER BY rowid;

DROP TABLE jobs_v2;

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

CREATE TRIGGER events_no_delete BEFORE DELETE ON events
WHEN EXISTS (SELECT 1 FROM jobs WHERE job_id = OLD.job_id)
  AND NOT EXISTS (SELECT 1 FROM retention_tombstones WHERE job_id = OLD.job_id)
BEGIN SELECT RAISE(ABORT, 'events: a retained history is not shortened'); END;

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

-- The ledger of revision 1: rows of jobs and events, and 32 MiB for each unfinished job.
INSERT INTO store_meta (id, accounting_revision) VALUES (1, 1);
INSERT INTO job_storage_usage (job_id, tenant, retained_bytes, reserved_bytes, requested_mem_mb)
SELECT job_id, tenant,
  64 + octet_length(job_id) + octet_length(tenant) + octet_length(language) + octet_length(status)
    + octet_length(spec_json) + coalesce(octet_length(effective_spec_json), 0)
    + coalesce(octet_length(receipt_json), 0)
    + coalesce((SELECT sum(64 + octet_length(kind) + octet_length(data_json)
      + octet_length(prev_hash) + octet_length(event_hash)) FROM events e
      WHERE e.job_id = jobs.job_id), 0),
  CASE WHEN status IN ('queued', 'running') THEN 33554432 ELSE 0 END, admitted_mem_mb
FROM jobs;
INSERT INTO tenant_storage_usage (tenant, charged_bytes)
SELECT tenant, sum(retained_bytes + reserved_bytes) FROM job_storage_usage GROUP BY tenant;
INSERT INTO storage_usage_total (id, charged_bytes)
SELECT 1, coalesce(sum(charged_bytes), 0) FROM tenant_storage_usage;

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
