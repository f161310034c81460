-- Version 2: both tables STRICT, with their checks and triggers; receipts, and events that are hashed.
-- What version 1 let pass is put in order and not thrown away. Events of version 1 stay unhashed: a
-- hash made up now would prove nothing. An event without a job, or one numbered below 1, stops all.
--
-- legacy_id, legacy_text, legacy_reads and legacy_wrapped are Python: bytes that are no UTF-8, or JSON
-- that no reader of this store takes, cannot be told in SQL.

ALTER TABLE jobs RENAME TO jobs_v1;
ALTER TABLE events RENAME TO events_v1;

CREATE TABLE jobs (
  job_id TEXT NOT NULL PRIMARY KEY CHECK (trim(job_id, char(9, 10, 11, 12, 13, 32)) <> ''),
  tenant TEXT NOT NULL CHECK (trim(tenant, char(9, 10, 11, 12, 13, 32)) <> ''),
  language TEXT NOT NULL CHECK (trim(language, char(9, 10, 11, 12, 13, 32)) <> ''),
  status TEXT NOT NULL DEFAULT 'queued' CHECK (status IN (
    'queued', 'running', 'succeeded', 'failed', 'timed_out', 'oom_killed', 'cancelled', 'error')),
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

-- A time is a whole number that JSON readers keep exact. Where the state needs one and there is none,
-- it is that of the start, else of the creation, else of this step.
INSERT INTO jobs (job_id, tenant, language, status, created_at_ms, started_at_ms, finished_at_ms,
  exit_code, spec_json, effective_spec_json)
WITH read AS (
  SELECT rowid AS place,
    legacy_id(CAST(job_id AS BLOB)) AS job_id,
    legacy_text(typeof(tenant), CAST(tenant AS BLOB)) AS tenant,
    legacy_text(typeof(language), CAST(language AS BLOB)) AS language,
    CASE WHEN status IN ('queued', 'running', 'succeeded', 'failed', 'timed_out', 'oom_killed',
      'cancelled', 'error') THEN status ELSE 'error' END AS status,
    CASE WHEN typeof(created_at_ms) = 'integer'
      AND created_at_ms BETWEEN 0 AND 9007199254740991 THEN created_at_ms END AS created,
    CASE WHEN typeof(started_at_ms) = 'integer'
      AND started_at_ms BETWEEN 0 AND 9007199254740991 THEN started_at_ms END AS started,
    CASE WHEN typeof(finished_at_ms) = 'integer'
      AND finished_at_ms BETWEEN 0 AND 9007199254740991 THEN finished_at_ms END AS finished,
    CASE WHEN typeof(exit_code) = 'integer'
      AND exit_code BETWEEN -2147483648 AND 2147483647 THEN exit_code END AS exit_code,
    spec_json, effective_spec_json
  FROM jobs_v1
)
SELECT job_id, coalesce(tenant, '__legacy_invalid__:' || job_id), coalesce(language, 'unknown'), status,
  coalesce(created, 0),
  CASE status WHEN 'queued' THEN NULL WHEN 'running' THEN coalesce(started, created, :now_ms)
    ELSE started END,
  CASE WHEN status IN ('queued', 'running') THEN NULL
    ELSE coalesce(finished, started, created, :now_ms) END,
  exit_code,
  CASE WHEN typeof(spec_json) = 'text' AND json_valid(spec_json)
    AND legacy_reads(CAST(spec_json AS BLOB)) THEN spec_json
    ELSE legacy_wrapped('legacy_invalid_spec_json', typeof(spec_json), CAST(spec_json AS BLOB)) END,
  CASE WHEN effective_spec_json IS NULL THEN NULL
    WHEN typeof(effective_spec_json) = 'text' AND json_valid(effective_spec_json)
    AND legacy_reads(CAST(effective_spec_json AS BLOB)) THEN effective_spec_json
    ELSE legacy_wrapped('legacy_invalid_spec_json', typeof(effective_spec_json),
      CAST(effective_spec_json AS BLOB)) END
FROM read ORDER BY place;

INSERT INTO events (job_id, seq, ts_ms, kind, data_json, prev_hash, event_hash, hash_version)
SELECT e.job_id, e.seq,
  CASE WHEN typeof(e.ts_ms) = 'integer' AND e.ts_ms BETWEEN 0 AND 9007199254740991 THEN e.ts_ms
    ELSE (SELECT coalesce(started_at_ms, nullif(created_at_ms, 0), :now_ms) FROM jobs j
      WHERE j.job_id = e.job_id) END,
  coalesce(legacy_text(typeof(e.kind), CAST(e.kind AS BLOB)), 'legacy_unknown'),
  CASE WHEN typeof(e.data_json) = 'text' AND json_valid(e.data_json)
    AND legacy_reads(CAST(e.data_json AS BLOB)) THEN e.data_json
    ELSE legacy_wrapped('legacy_invalid_data_json', typeof(e.data_json), CAST(e.data_json AS BLOB)) END,
  '', '', 0
FROM events_v1 e ORDER BY e.job_id, e.seq;

DROP TABLE events_v1;
DROP TABLE jobs_v1;

CREATE TRIGGER jobs_no_replace BEFORE INSERT ON jobs
WHEN EXISTS (SELECT 1 FROM jobs WHERE job_id = NEW.job_id)
BEGIN SELECT RAISE(ABORT, 'jobs: this job exists'); END;

CREATE TRIGGER jobs_identity
BEFORE UPDATE OF job_id, tenant, language, spec_json, created_at_ms ON jobs
BEGIN SELECT RAISE(ABORT, 'jobs: identity, spec and creation time are immutable'); END;

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
WHEN OLD.receipt_json IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'jobs: a receipt is immutable'); END;

CREATE TRIGGER jobs_no_delete_unfinished BEFORE DELETE ON jobs
WHEN OLD.status IN ('queued', 'running')
BEGIN SELECT RAISE(ABORT, 'jobs: an unfinished job is not deleted'); END;

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
BEGIN SELECT RAISE(ABORT, 'events: a retained history is not shortened'); END;
