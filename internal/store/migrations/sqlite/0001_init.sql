-- +goose Up

-- The record. Entries are numbered 1, 2, 3 … in each namespace and chained by
-- hash; see package audit for what the hash covers. Times are RFC 3339 in UTC
-- with nine digits after the point, so that text order is time order.
CREATE TABLE audit (
    id             TEXT    NOT NULL,
    namespace      TEXT    NOT NULL,
    seq            INTEGER NOT NULL CHECK (seq > 0),
    timestamp      TEXT    NOT NULL,
    action         TEXT    NOT NULL,
    phase          TEXT    NOT NULL,
    request_id     TEXT    NOT NULL,
    session_id     TEXT    NOT NULL,
    language       TEXT    NOT NULL,
    exit_code      INTEGER,
    duration_ms    REAL,
    success        INTEGER,
    detail         TEXT    NOT NULL,
    actor          TEXT    NOT NULL,
    resource_usage TEXT,            -- JSON object
    metadata       TEXT,            -- JSON object
    prev           TEXT    NOT NULL,
    hash           TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX audit_chain ON audit (namespace, seq);
CREATE INDEX audit_action ON audit (namespace, action, seq);

-- +goose StatementBegin
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only: no row may be changed');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only: no row may be deleted');
END;
-- +goose StatementEnd

-- INSERT OR REPLACE removes rows without asking the trigger above.
-- +goose StatementBegin
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit
WHEN NEW.seq <= (SELECT max(seq) FROM audit WHERE namespace = NEW.namespace)
    OR EXISTS (SELECT 1 FROM audit WHERE rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only: no row may be replaced');
END;
-- +goose StatementEnd

-- One row a request. result is the whole result as JSON without stdout, stderr
-- and the content of artifacts. A stream is kept inline in stdout or stderr, or
-- under its SHA-256 among the blobs in stdout_blob or stderr_blob.
CREATE TABLE executions (
    request_id  TEXT    NOT NULL PRIMARY KEY,
    namespace   TEXT    NOT NULL,
    session_id  TEXT,
    language    TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    exit_code   INTEGER,
    created_at  TEXT    NOT NULL,
    ended_at    TEXT,
    result      TEXT,            -- JSON
    stdout      BLOB,
    stderr      BLOB,
    stdout_blob TEXT,            -- SHA-256, hex
    stderr_blob TEXT,            -- SHA-256, hex
    receipt     TEXT             -- JSON: the DSSE envelope
) STRICT, WITHOUT ROWID;

CREATE INDEX executions_namespace ON executions (namespace, created_at);

-- Files that a request left. The bytes are the blob of that sha256.
CREATE TABLE artifacts (
    request_id TEXT    NOT NULL,
    name       TEXT    NOT NULL,  -- path below /mnt/data
    path       TEXT    NOT NULL,  -- absolute
    mime_type  TEXT    NOT NULL,
    size_bytes INTEGER NOT NULL,
    sha256     TEXT    NOT NULL,
    signature  TEXT    NOT NULL,
    created_at TEXT    NOT NULL,
    PRIMARY KEY (request_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX artifacts_sha256 ON artifacts (sha256);

-- Processes that hold the state directory open. A row outlives a process that
-- was killed; boot_id and heartbeat tell that it did.
CREATE TABLE servers (
    id         TEXT    NOT NULL PRIMARY KEY,
    pid        INTEGER NOT NULL,
    boot_id    TEXT    NOT NULL,
    started_at TEXT    NOT NULL,
    heartbeat  TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- "smcp": the file is ours.
PRAGMA application_id = 1936548720;
PRAGMA user_version = 1;

-- +goose Down

DROP TABLE servers;
DROP TABLE artifacts;
DROP TABLE executions;
DROP TABLE audit;

PRAGMA user_version = 0;
