-- +goose Up

-- The MAC of a grant, by a key that is derived from the signing key; NULL: the grant was made by a
-- release without MACs, and is not in force; empty: the grant was revoked. See package gate. A server of
-- such a release that still runs makes, uses and revokes grants without MACs, so it is refused.
ALTER TABLE grants ADD COLUMN mac TEXT;

-- +goose StatementBegin
CREATE TRIGGER grants_made BEFORE INSERT ON grants
WHEN NEW.mac IS NULL
BEGIN
    SELECT RAISE(ABORT, 'this server is of an older release than the database: start it again with the newer one');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER grants_changed BEFORE UPDATE ON grants
WHEN NEW.mac = OLD.mac AND (NEW.request_id <> OLD.request_id OR NEW.revoked_at <> OLD.revoked_at)
BEGIN
    SELECT RAISE(ABORT, 'this server is of an older release than the database: start it again with the newer one');
END;
-- +goose StatementEnd

PRAGMA user_version = 17;

-- +goose Down

DROP TRIGGER grants_changed;
DROP TRIGGER grants_made;

ALTER TABLE grants DROP COLUMN mac;

PRAGMA user_version = 16;
