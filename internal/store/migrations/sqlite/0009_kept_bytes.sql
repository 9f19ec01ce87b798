-- +goose Up

-- How much each result takes, with its output and files; NULL: kept by a release
-- that did not count. The triggers keep the sum of each namespace.
ALTER TABLE executions ADD COLUMN bytes INTEGER;

CREATE TABLE kept_bytes (
    namespace TEXT NOT NULL PRIMARY KEY,
    bytes     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose StatementBegin
CREATE TRIGGER executions_add_bytes AFTER INSERT ON executions
BEGIN
    INSERT INTO kept_bytes VALUES (NEW.namespace, coalesce(NEW.bytes, 0))
        ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER executions_change_bytes AFTER UPDATE OF bytes ON executions
BEGIN
    INSERT INTO kept_bytes VALUES (NEW.namespace, coalesce(NEW.bytes, 0) - coalesce(OLD.bytes, 0))
        ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER executions_drop_bytes AFTER DELETE ON executions
BEGIN
    UPDATE kept_bytes SET bytes = bytes - coalesce(OLD.bytes, 0) WHERE namespace = OLD.namespace;
END;
-- +goose StatementEnd

PRAGMA user_version = 9;

-- +goose Down

DROP TRIGGER executions_add_bytes;
DROP TRIGGER executions_change_bytes;
DROP TRIGGER executions_drop_bytes;
DROP TABLE kept_bytes;
ALTER TABLE executions DROP COLUMN bytes;

PRAGMA user_version = 8;
