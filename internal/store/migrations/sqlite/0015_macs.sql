-- +goose Up

-- The MAC of an entry, by a key that is derived from the signing key; NULL: the entry was
-- appended by a release without MACs. See package audit. A server of such a release that still
-- runs would append entries that cannot be told from forged ones, so they are refused.
ALTER TABLE audit ADD COLUMN mac TEXT;

DROP TRIGGER audit_no_replace;

-- +goose StatementBegin
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit
WHEN NEW.mac IS NULL
    OR NEW.seq <= (SELECT max(seq) FROM audit WHERE namespace = NEW.namespace)
    OR EXISTS (SELECT 1 FROM audit WHERE position = NEW.position)
BEGIN
    SELECT RAISE(ABORT, 'this server is of an older release than the database: start it again with the newer one') WHERE NEW.mac IS NULL;
    SELECT RAISE(ABORT, 'the audit is append-only: no row may be replaced');
END;
-- +goose StatementEnd

PRAGMA user_version = 15;

-- +goose Down

DROP TRIGGER audit_no_replace;

ALTER TABLE audit DROP COLUMN mac;

-- +goose StatementBegin
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit
WHEN NEW.seq <= (SELECT max(seq) FROM audit WHERE namespace = NEW.namespace)
    OR EXISTS (SELECT 1 FROM audit WHERE position = NEW.position)
BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only: no row may be replaced');
END;
-- +goose StatementEnd

PRAGMA user_version = 14;
