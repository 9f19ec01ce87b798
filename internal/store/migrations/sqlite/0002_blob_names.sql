-- +goose Up

-- Whether a row names a blob is asked for each blob that may go. Most rows name
-- none, and cost nothing here.
CREATE INDEX executions_stdout_blob ON executions (stdout_blob) WHERE stdout_blob IS NOT NULL;
CREATE INDEX executions_stderr_blob ON executions (stderr_blob) WHERE stderr_blob IS NOT NULL;

PRAGMA user_version = 2;

-- +goose Down

DROP INDEX executions_stdout_blob;
DROP INDEX executions_stderr_blob;

PRAGMA user_version = 1;
