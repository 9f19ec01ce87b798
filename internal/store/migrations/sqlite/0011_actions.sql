-- +goose Up

-- Nearly all entries are of runs. To write each of them to an index that finds the
-- entries of one action costs a page, and finds no less: audit_chain leads from one run
-- to the next. So the index has the other actions only.
DROP INDEX audit_action;
CREATE INDEX audit_action ON audit (namespace, action, seq) WHERE action <> 'execute';

PRAGMA user_version = 11;

-- +goose Down

DROP INDEX audit_action;
CREATE INDEX audit_action ON audit (namespace, action, seq);

PRAGMA user_version = 10;
