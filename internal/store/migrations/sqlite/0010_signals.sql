-- +goose Up

-- How often the topics of Store.Watch have changed. The rows that are here from the
-- start are of topics whose tables an older release has filled.
CREATE TABLE signals (
    topic   TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO signals SELECT 'gate', 1 WHERE EXISTS (SELECT 1 FROM approvals UNION ALL SELECT 1 FROM grants);
INSERT INTO signals SELECT 'limits', 1 WHERE EXISTS (SELECT 1 FROM limits);

PRAGMA user_version = 10;

-- +goose Down

DROP TABLE signals;

PRAGMA user_version = 9;
