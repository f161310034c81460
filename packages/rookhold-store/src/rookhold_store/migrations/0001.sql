-- Version 1: jobs and their events, each job's numbered from 1. Next to nothing is checked here: what
-- a program of that version wrote is what step 0002 has to bring in order.

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

CREATE TABLE jobs (
  job_id TEXT NOT NULL PRIMARY KEY
    CHECK (typeof(job_id) = 'text' AND trim(job_id, char(9, 10, 11, 12, 13, 32)) <> ''),
  tenant TEXT,
  language TEXT,
  status TEXT DEFAULT 'queued',
  spec_json TEXT,
  effective_spec_json TEXT,
  created_at_ms INTEGER,
  started_at_ms INTEGER,
  finished_at_ms INTEGER,
  exit_code INTEGER
);

CREATE TABLE events (
  job_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  ts_ms INTEGER,
  kind TEXT,
  data_json TEXT,
  PRIMARY KEY (job_id, seq)
);
