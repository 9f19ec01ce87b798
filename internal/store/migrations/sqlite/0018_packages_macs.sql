-- +goose Up

-- The id of a row, which the record names when the row is removed, and the MAC of the row, by a key that is
-- derived from the signing key. No MAC: the row was made by a release without MACs, and is not in force. See
-- package installed. A server of such a release that still runs makes rows without MACs and removes rows
-- without naming them in the record, so it is refused. This release empties the MAC of a row before it
-- removes the row.
ALTER TABLE packages ADD COLUMN id TEXT;
ALTER TABLE packages ADD COLUMN mac TEXT;

-- +goose StatementBegin
CREATE TRIGGER packages_made BEFORE INSERT ON packages
WHEN NEW.mac IS NULL
BEGIN
    SELECT RAISE(ABORT, 'this server is of an older release than the database: start it again with the newer one');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER packages_removed BEFORE DELETE ON packages
WHEN OLD.mac <> ''
BEGIN
    SELECT RAISE(ABORT, 'this server is of an older release than the database: start it again with the newer one');
END;
-- +goose StatementEnd

PRAGMA user_version = 18;

-- +goose Down

DROP TRIGGER packages_removed;
DROP TRIGGER packages_made;

ALTER TABLE packages DROP COLUMN mac;
ALTER TABLE packages DROP COLUMN id;

PRAGMA user_version = 17;
