-- +goose Up

-- A row of some kilobytes does not belong into the tree of its own random key:
-- there it takes pages of its own, and half of each page stays empty. In a table
-- by row number it goes to the end.
CREATE TABLE executions_by_row (
    request_id  TEXT    NOT NULL,
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
) STRICT;

INSERT INTO executions_by_row (request_id, namespace, session_id, language, status, exit_code, created_at, ended_at, result, stdout, stderr, stdout_blob, stderr_blob, receipt)
SELECT request_id, namespace, session_id, language, status, exit_code, created_at, ended_at, result, stdout, stderr, stdout_blob, stderr_blob, receipt FROM executions ORDER BY created_at;

DROP TABLE executions;
ALTER TABLE executions_by_row RENAME TO executions;

CREATE UNIQUE INDEX executions_request ON executions (request_id);
CREATE INDEX executions_namespace ON executions (namespace, created_at);
CREATE INDEX executions_stdout_blob ON executions (stdout_blob) WHERE stdout_blob IS NOT NULL;
CREATE INDEX executions_stderr_blob ON executions (stderr_blob) WHERE stderr_blob IS NOT NULL;

PRAGMA user_version = 4;

-- +goose Down

CREATE TABLE executions_by_key (
    request_id  TEXT    NOT NULL PRIMARY KEY,
    namespace   TEXT    NOT NULL,
    session_id  TEXT,
    language    TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    exit_code   INTEGER,
    created_at  TEXT    NOT NULL,
    ended_at    TEXT,
    result      TEXT,
    stdout      BLOB,
    stderr      BLOB,
    stdout_blob TEXT,
    stderr_blob TEXT,
    receipt     TEXT
) STRICT, WITHOUT ROWID;

INSERT INTO executions_by_key SELECT request_id, namespace, session_id, language, status, exit_code, created_at, ended_at, result, stdout, stderr, stdout_blob, stderr_blob, receipt FROM executions;

DROP TABLE executions;
ALTER TABLE executions_by_key RENAME TO executions;

CREATE INDEX executions_namespace ON executions (namespace, created_at);
CREATE INDEX executions_stdout_blob ON executions (stdout_blob) WHERE stdout_blob IS NOT NULL;
CREATE INDEX executions_stderr_blob ON executions (stderr_blob) WHERE stderr_blob IS NOT NULL;

PRAGMA user_version = 3;
