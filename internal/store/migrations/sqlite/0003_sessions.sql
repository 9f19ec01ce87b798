-- +goose Up

-- Sessions, for those who come after the process that has them. owner names a
-- file of the state directory that is locked while that process lives. Several
-- owners may have sessions of one id.
CREATE TABLE sessions (
    namespace  TEXT NOT NULL,
    session_id TEXT NOT NULL,
    owner      TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('live', 'expired')),
    changed_at TEXT NOT NULL,
    info       TEXT NOT NULL,  -- JSON, as it was made
    PRIMARY KEY (namespace, session_id, owner)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 3;

-- +goose Down

DROP TABLE sessions;

PRAGMA user_version = 2;
