-- +goose Up

-- The column and the refusals are those of SQLite's migration 0019.
ALTER TABLE secrets ADD COLUMN mac TEXT COLLATE "C";

-- +goose StatementBegin
CREATE FUNCTION secrets_made() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.mac IS NULL THEN
        RAISE EXCEPTION 'this server is of an older release than the database: start it again with the newer one';
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION secrets_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.mac IS NOT DISTINCT FROM OLD.mac AND NEW.sealed <> OLD.sealed THEN
        RAISE EXCEPTION 'this server is of an older release than the database: start it again with the newer one';
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER secrets_made BEFORE INSERT ON secrets FOR EACH ROW EXECUTE FUNCTION secrets_made();
CREATE TRIGGER secrets_changed BEFORE UPDATE ON secrets FOR EACH ROW EXECUTE FUNCTION secrets_changed();

-- +goose Down

DROP TRIGGER secrets_changed ON secrets;
DROP TRIGGER secrets_made ON secrets;
DROP FUNCTION secrets_changed, secrets_made;

ALTER TABLE secrets DROP COLUMN mac;
