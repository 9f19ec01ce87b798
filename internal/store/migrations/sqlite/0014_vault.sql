-- +goose Up

-- The topic of secrets, which package vault reads only once some were added.
INSERT INTO signals SELECT 'vault', 1 WHERE EXISTS (SELECT 1 FROM secrets);

PRAGMA user_version = 14;

-- +goose Down

DELETE FROM signals WHERE topic = 'vault';

PRAGMA user_version = 13;
