-- +goose Up

-- The column and the refusal are those of SQLite's migration 0015.
ALTER TABLE audit ADD COLUMN mac TEXT COLLATE "C";

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_append() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.seq IS NULL THEN -- the writer's end of the chain is out of date: it looks and tries again
        RETURN NULL;
    END IF;
    IF NEW.mac IS NULL THEN
        RAISE EXCEPTION 'this server is of an older release than the database: start it again with the newer one';
    END IF;
    IF NEW.position IS NULL THEN
        NEW.position := 1 + greatest((SELECT coalesce(max(position), 0) FROM audit), (SELECT coalesce(max(size), 0) FROM audit_rotations));
    END IF;
    IF NEW.seq <= (SELECT max(seq) FROM audit WHERE namespace = NEW.namespace) THEN
        RAISE EXCEPTION 'the audit is append-only: no row may be replaced';
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_append() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.seq IS NULL THEN -- the writer's end of the chain is out of date: it looks and tries again
        RETURN NULL;
    END IF;
    IF NEW.position IS NULL THEN
        NEW.position := 1 + greatest((SELECT coalesce(max(position), 0) FROM audit), (SELECT coalesce(max(size), 0) FROM audit_rotations));
    END IF;
    IF NEW.seq <= (SELECT max(seq) FROM audit WHERE namespace = NEW.namespace) THEN
        RAISE EXCEPTION 'the audit is append-only: no row may be replaced';
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

ALTER TABLE audit DROP COLUMN mac;
