-- +goose Up

-- The MAC of a row, by a key that is derived from the signing key; NULL: the file was made without
-- such a key. See notes_row.go of package store.
ALTER TABLE notes ADD COLUMN mac TEXT;

PRAGMA user_version = 16;

-- +goose Down

ALTER TABLE notes DROP COLUMN mac;

PRAGMA user_version = 15;
