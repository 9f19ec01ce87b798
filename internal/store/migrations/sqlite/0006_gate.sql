-- +goose Up

-- What persons were asked, and what they opened. subject is the canonical JSON
-- of what is asked for or open, digest its SHA-256: what was approved is what is
-- opened. Every change stands in the audit, in the same transaction. Times are
-- those of the audit; an empty one has not come, or never will.
CREATE TABLE approvals (
    id         TEXT NOT NULL PRIMARY KEY,
    namespace  TEXT NOT NULL,
    subject    TEXT NOT NULL,
    digest     TEXT NOT NULL,
    reason     TEXT NOT NULL,  -- in the words of a model
    actor      TEXT NOT NULL,
    session_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'denied', 'expired')),
    asked_at   TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    decided_at TEXT NOT NULL,
    decided_by TEXT NOT NULL,
    grant_id   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The same thing is asked once at a time.
CREATE UNIQUE INDEX approvals_pending ON approvals (namespace, digest) WHERE state = 'pending';

CREATE TABLE grants (
    id          TEXT NOT NULL PRIMARY KEY,
    namespace   TEXT NOT NULL,
    subject     TEXT NOT NULL,
    digest      TEXT NOT NULL,
    scope       TEXT NOT NULL CHECK (scope IN ('once', 'session', 'duration', 'always')),
    session_id  TEXT NOT NULL,  -- of scope session
    request_id  TEXT NOT NULL,  -- of scope once: the run that has used it
    approval_id TEXT NOT NULL,
    actor       TEXT NOT NULL,
    granted_at  TEXT NOT NULL,
    expires_at  TEXT NOT NULL,
    revoked_at  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 6;

-- +goose Down

DROP TABLE grants;
DROP TABLE approvals;

PRAGMA user_version = 5;
