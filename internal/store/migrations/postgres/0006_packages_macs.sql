-- +goose Up

-- The columns and the refusals are those of SQLite's migration 0018.
ALTER TABLE packages ADD COLUMN id TEXT COLLATE "C";
ALTER TABLE packages ADD COLUMN mac TEXT COLLATE "C";

-- +goose StatementBegin
CREATE FUNCTION packages_made() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.mac IS NULL THEN
        RAISE EXCEPTION 'this server is of an older release than the database: start it again with the newer one';
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION packages_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.mac <> '' THEN
        RAISE EXCEPTION 'this server is of an older release than the database: start it again with the newer one';
    END IF;
    RETURN OLD;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER packages_made BEFORE INSERT ON packages FOR EACH ROW EXECUTE FUNCTION packages_made();
CREATE TRIGGER packages_removed BEFORE DELETE ON packages FOR EACH ROW EXECUTE FUNCTION packages_removed();

-- +goose Down

DROP TRIGGER packages_removed ON packages;
DROP TRIGGER packages_made ON packages;
DROP FUNCTION packages_removed, packages_made;

ALTER TABLE packages DROP COLUMN mac;
ALTER TABLE packages DROP COLUMN id;
