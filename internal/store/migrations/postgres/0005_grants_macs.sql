-- +goose Up

-- The column and the refusals are those of SQLite's migration 0017.
ALTER TABLE grants ADD COLUMN mac TEXT COLLATE "C";

-- +goose StatementBegin
CREATE FUNCTION grants_made() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.mac IS NULL THEN
        RAISE EXCEPTION 'this server is of an older release than the database: start it again with the newer one';
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION grants_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.mac = OLD.mac AND (NEW.request_id <> OLD.request_id OR NEW.revoked_at <> OLD.revoked_at) THEN
        RAISE EXCEPTION 'this server is of an older release than the database: start it again with the newer one';
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER grants_made BEFORE INSERT ON grants FOR EACH ROW EXECUTE FUNCTION grants_made();
CREATE TRIGGER grants_changed BEFORE UPDATE ON grants FOR EACH ROW EXECUTE FUNCTION grants_changed();

-- +goose Down

DROP TRIGGER grants_changed ON grants;
DROP TRIGGER grants_made ON grants;
DROP FUNCTION grants_changed, grants_made;

ALTER TABLE grants DROP COLUMN mac;
