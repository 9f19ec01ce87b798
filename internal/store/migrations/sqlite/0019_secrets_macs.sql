-- +goose Up

-- The MAC of a secret, by a key that is derived from the key of the vault; NULL: the secret was stored by a
-- release without MACs, and is not used. See package vault. A server of such a release that still runs
-- would store secrets without MACs, so it is refused.
ALTER TABLE secrets ADD COLUMN mac TEXT;

-- +goose StatementBegin
CREATE TRIGGER secrets_made BEFORE INSERT ON secrets
WHEN NEW.mac IS NULL
BEGIN
    SELECT RAISE(ABORT, 'this server is of an older release than the database: start it again with the newer one');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER secrets_changed BEFORE UPDATE ON secrets
WHEN NEW.mac IS OLD.mac AND NEW.sealed <> OLD.sealed
BEGIN
    SELECT RAISE(ABORT, 'this server is of an older release than the database: start it again with the newer one');
END;
-- +goose StatementEnd

PRAGMA user_version = 19;

-- +goose Down

DROP TRIGGER secrets_changed;
DROP TRIGGER secrets_made;

ALTER TABLE secrets DROP COLUMN mac;

PRAGMA user_version = 18;
