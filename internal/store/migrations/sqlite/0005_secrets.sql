-- +goose Up

-- The sealed vault. sealed is an age file for the recipient in vault_recipient;
-- what is in it names its namespace and key, so that no row can stand for another.
-- A changed value has a new version, and no version is given twice: the number of
-- rows of a namespace and their highest version tell whether any of them changed.
CREATE TABLE secrets (
    version    INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace  TEXT NOT NULL,
    key        TEXT NOT NULL,
    sealed     BLOB NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL   -- empty: never
) STRICT;

CREATE UNIQUE INDEX secrets_key ON secrets (namespace, key);

-- Whom the secrets are sealed for.
CREATE TABLE vault_recipient (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    recipient TEXT NOT NULL
) STRICT;

PRAGMA user_version = 5;

-- +goose Down

DROP TABLE vault_recipient;
DROP TABLE secrets;

PRAGMA user_version = 4;
