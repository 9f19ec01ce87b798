-- +goose Up

-- How many bytes of a file with notes have been carried out. See notes.go of package store.
CREATE TABLE notes (
    file    TEXT    NOT NULL PRIMARY KEY,
    applied INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 13;

-- +goose Down

DROP TABLE notes;

PRAGMA user_version = 12;
