-- +goose Up

-- Entries get a place in one order, over all namespaces: 1, 2, 3 … as they were
-- committed. It was SQLite's own row number until now, which VACUUM may change.
-- audit_checkpoints has, for a number of entries from the first on, what was
-- signed of them; see package audit.
CREATE TABLE audit_in_order (
    position       INTEGER NOT NULL PRIMARY KEY,
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

INSERT INTO audit_in_order (id, namespace, seq, timestamp, action, phase, request_id, session_id, language, exit_code, duration_ms, success, detail, actor, resource_usage, metadata, prev, hash)
SELECT id, namespace, seq, timestamp, action, phase, request_id, session_id, language, exit_code, duration_ms, success, detail, actor, resource_usage, metadata, prev, hash FROM audit ORDER BY rowid;

DROP TABLE audit;
ALTER TABLE audit_in_order RENAME TO audit;

CREATE UNIQUE INDEX audit_chain ON audit (namespace, seq);
CREATE INDEX audit_action ON audit (namespace, action, seq);

-- The signed word on the first so many entries. edge is what the tree of the
-- next checkpoint is built on: 32 bytes for each of its perfect subtrees.
CREATE TABLE audit_checkpoints (
    size INTEGER NOT NULL PRIMARY KEY CHECK (size > 0),
    note TEXT    NOT NULL,
    edge BLOB    NOT NULL
) STRICT;

-- The signed word on entries that were dropped for their age: the newest one
-- alone. audit_dropped has the end of the chain of each namespace of theirs.
CREATE TABLE audit_rotations (
    size INTEGER NOT NULL PRIMARY KEY CHECK (size > 0),
    note TEXT    NOT NULL,
    edge BLOB    NOT NULL
) STRICT;

CREATE TABLE audit_dropped (
    namespace TEXT    NOT NULL PRIMARY KEY,
    seq       INTEGER NOT NULL,
    hash      TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose StatementBegin
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only: no row may be changed');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
WHEN OLD.position > coalesce((SELECT max(size) FROM audit_rotations), 0)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only: no row may be deleted');
END;
-- +goose StatementEnd

-- INSERT OR REPLACE removes rows without asking the trigger above.
-- +goose StatementBegin
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit
WHEN NEW.seq <= (SELECT max(seq) FROM audit WHERE namespace = NEW.namespace)
    OR EXISTS (SELECT 1 FROM audit WHERE position = NEW.position)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only: no row may be replaced');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_checkpoints_no_update BEFORE UPDATE ON audit_checkpoints
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only: no checkpoint may be changed');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_checkpoints_no_delete BEFORE DELETE ON audit_checkpoints
WHEN OLD.size >= coalesce((SELECT max(size) FROM audit_rotations), 0)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only: no checkpoint may be deleted');
END;
-- +goose StatementEnd

PRAGMA user_version = 7;

-- +goose Down

DROP TABLE audit_dropped;
DROP TABLE audit_rotations;
DROP TABLE audit_checkpoints;

CREATE TABLE audit_by_row (
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
    resource_usage TEXT,
    metadata       TEXT,
    prev           TEXT    NOT NULL,
    hash           TEXT    NOT NULL
) STRICT;

INSERT INTO audit_by_row SELECT id, namespace, seq, timestamp, action, phase, request_id, session_id, language, exit_code, duration_ms, success, detail, actor, resource_usage, metadata, prev, hash FROM audit ORDER BY position;

DROP TABLE audit;
ALTER TABLE audit_by_row RENAME TO audit;

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

-- +goose StatementBegin
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit
WHEN NEW.seq <= (SELECT max(seq) FROM audit WHERE namespace = NEW.namespace)
    OR EXISTS (SELECT 1 FROM audit WHERE rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only: no row may be replaced');
END;
-- +goose StatementEnd

PRAGMA user_version = 6;
