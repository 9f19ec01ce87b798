-- +goose Up

-- What a namespace keeps in place of the configured limits. A limit of 0 is not
-- kept. See package limits for how a change is noticed by other processes.
CREATE TABLE limits (
    namespace  TEXT NOT NULL PRIMARY KEY,
    changed_at TEXT NOT NULL,
    kept       TEXT NOT NULL  -- JSON
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 8;

-- +goose Down

DROP TABLE limits;

PRAGMA user_version = 7;
