-- +goose Up

-- Which package trees the later runs of a namespace see. See package installed.
CREATE TABLE packages (
    namespace TEXT NOT NULL,
    language  TEXT NOT NULL,
    digest    TEXT NOT NULL,
    added_at  TEXT NOT NULL,
    requested TEXT NOT NULL,  -- JSON: the specs, as they were asked for
    PRIMARY KEY (namespace, language, digest)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 12;

-- +goose Down

DROP TABLE packages;

PRAGMA user_version = 11;
