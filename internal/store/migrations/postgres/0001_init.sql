-- +goose Up

-- Names the directory of this database's blobs in the state directory of each server.
CREATE TABLE database_id (
    id TEXT COLLATE "C" NOT NULL
);

INSERT INTO database_id VALUES (substr(md5(random()::text || clock_timestamp()::text), 1, 16));

-- The tables are those of SQLite's migration 0012, and mean the same. Text is compared by
-- its bytes, as SQLite does: times in it sort in the order of time.
CREATE TABLE audit (
    position       BIGINT NOT NULL PRIMARY KEY, -- without gaps; a trigger gives it
    id             TEXT   COLLATE "C" NOT NULL,
    namespace      TEXT   COLLATE "C" NOT NULL,
    seq            BIGINT NOT NULL CHECK (seq > 0),
    timestamp      TEXT   COLLATE "C" NOT NULL,
    action         TEXT   COLLATE "C" NOT NULL,
    phase          TEXT   COLLATE "C" NOT NULL,
    request_id     TEXT   COLLATE "C" NOT NULL,
    session_id     TEXT   COLLATE "C" NOT NULL,
    language       TEXT   COLLATE "C" NOT NULL,
    exit_code      BIGINT,
    duration_ms    DOUBLE PRECISION,
    success        BIGINT,
    detail         TEXT   COLLATE "C" NOT NULL,
    actor          TEXT   COLLATE "C" NOT NULL,
    resource_usage TEXT   COLLATE "C",
    metadata       TEXT   COLLATE "C",
    prev           TEXT   COLLATE "C" NOT NULL,
    hash           TEXT   COLLATE "C" NOT NULL
);

CREATE UNIQUE INDEX audit_chain ON audit (namespace, seq);
CREATE INDEX audit_action ON audit (namespace, action, seq) WHERE action <> 'execute';

CREATE TABLE audit_checkpoints (
    size BIGINT NOT NULL PRIMARY KEY CHECK (size > 0),
    note TEXT   COLLATE "C" NOT NULL,
    edge BYTEA  NOT NULL
);

CREATE TABLE audit_rotations (
    size BIGINT NOT NULL PRIMARY KEY CHECK (size > 0),
    note TEXT   COLLATE "C" NOT NULL,
    edge BYTEA  NOT NULL
);

CREATE TABLE audit_dropped (
    namespace TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    seq       BIGINT NOT NULL,
    hash      TEXT   COLLATE "C" NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is append-only: no % of %', lower(TG_OP), TG_TABLE_NAME;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION audit_append() RETURNS trigger LANGUAGE plpgsql AS $$
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

-- +goose StatementBegin
CREATE FUNCTION audit_drop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.position > coalesce((SELECT max(size) FROM audit_rotations), 0) THEN
        RAISE EXCEPTION 'the audit is append-only: no row may be deleted';
    END IF;
    RETURN OLD;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION audit_checkpoints_drop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.size >= coalesce((SELECT max(size) FROM audit_rotations), 0) THEN
        RAISE EXCEPTION 'the audit is append-only: no checkpoint may be deleted';
    END IF;
    RETURN OLD;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER audit_append BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION audit_append();
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_drop();
CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_checkpoints_no_update BEFORE UPDATE ON audit_checkpoints FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_checkpoints_no_delete BEFORE DELETE ON audit_checkpoints FOR EACH ROW EXECUTE FUNCTION audit_checkpoints_drop();
CREATE TRIGGER audit_checkpoints_no_truncate BEFORE TRUNCATE ON audit_checkpoints EXECUTE FUNCTION audit_is_append_only();

CREATE TABLE executions (
    request_id  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    namespace   TEXT COLLATE "C" NOT NULL,
    session_id  TEXT COLLATE "C",
    language    TEXT COLLATE "C" NOT NULL,
    status      TEXT COLLATE "C" NOT NULL,
    exit_code   BIGINT,
    created_at  TEXT COLLATE "C" NOT NULL,
    ended_at    TEXT COLLATE "C",
    result      TEXT COLLATE "C",
    stdout      BYTEA,
    stderr      BYTEA,
    stdout_blob TEXT COLLATE "C",
    stderr_blob TEXT COLLATE "C",
    receipt     TEXT COLLATE "C",
    bytes       BIGINT
);

CREATE INDEX executions_namespace ON executions (namespace, created_at);
CREATE INDEX executions_stdout_blob ON executions (stdout_blob) WHERE stdout_blob IS NOT NULL;
CREATE INDEX executions_stderr_blob ON executions (stderr_blob) WHERE stderr_blob IS NOT NULL;

CREATE TABLE kept_bytes (
    namespace TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    bytes     BIGINT NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION executions_count_bytes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        UPDATE kept_bytes SET bytes = bytes - coalesce(OLD.bytes, 0) WHERE namespace = OLD.namespace;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO kept_bytes VALUES (NEW.namespace, coalesce(NEW.bytes, 0))
            ON CONFLICT (namespace) DO UPDATE SET bytes = kept_bytes.bytes + excluded.bytes;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER executions_count_bytes AFTER INSERT OR DELETE OR UPDATE OF bytes ON executions
    FOR EACH ROW EXECUTE FUNCTION executions_count_bytes();

CREATE TABLE artifacts (
    request_id TEXT   COLLATE "C" NOT NULL,
    name       TEXT   COLLATE "C" NOT NULL,
    path       TEXT   COLLATE "C" NOT NULL,
    mime_type  TEXT   COLLATE "C" NOT NULL,
    size_bytes BIGINT NOT NULL,
    sha256     TEXT   COLLATE "C" NOT NULL,
    signature  TEXT   COLLATE "C" NOT NULL,
    created_at TEXT   COLLATE "C" NOT NULL,
    PRIMARY KEY (request_id, name)
);

CREATE INDEX artifacts_sha256 ON artifacts (sha256);

CREATE TABLE servers (
    id         TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    pid        BIGINT NOT NULL,
    boot_id    TEXT   COLLATE "C" NOT NULL,
    started_at TEXT   COLLATE "C" NOT NULL,
    heartbeat  TEXT   COLLATE "C" NOT NULL
);

CREATE TABLE sessions (
    namespace  TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    owner      TEXT COLLATE "C" NOT NULL,
    state      TEXT COLLATE "C" NOT NULL CHECK (state IN ('live', 'expired')),
    changed_at TEXT COLLATE "C" NOT NULL,
    info       TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, session_id, owner)
);

CREATE TABLE secrets (
    version    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace  TEXT   COLLATE "C" NOT NULL,
    key        TEXT   COLLATE "C" NOT NULL,
    sealed     BYTEA  NOT NULL,
    created_at TEXT   COLLATE "C" NOT NULL,
    expires_at TEXT   COLLATE "C" NOT NULL
);

CREATE UNIQUE INDEX secrets_key ON secrets (namespace, key);

CREATE TABLE vault_recipient (
    id        BIGINT PRIMARY KEY CHECK (id = 1),
    recipient TEXT   COLLATE "C" NOT NULL
);

CREATE TABLE approvals (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    namespace  TEXT COLLATE "C" NOT NULL,
    subject    TEXT COLLATE "C" NOT NULL,
    digest     TEXT COLLATE "C" NOT NULL,
    reason     TEXT COLLATE "C" NOT NULL,
    actor      TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    state      TEXT COLLATE "C" NOT NULL CHECK (state IN ('pending', 'approved', 'denied', 'expired')),
    asked_at   TEXT COLLATE "C" NOT NULL,
    expires_at TEXT COLLATE "C" NOT NULL,
    decided_at TEXT COLLATE "C" NOT NULL,
    decided_by TEXT COLLATE "C" NOT NULL,
    grant_id   TEXT COLLATE "C" NOT NULL
);

CREATE UNIQUE INDEX approvals_pending ON approvals (namespace, digest) WHERE state = 'pending';

CREATE TABLE grants (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    namespace   TEXT COLLATE "C" NOT NULL,
    subject     TEXT COLLATE "C" NOT NULL,
    digest      TEXT COLLATE "C" NOT NULL,
    scope       TEXT COLLATE "C" NOT NULL CHECK (scope IN ('once', 'session', 'duration', 'always')),
    session_id  TEXT COLLATE "C" NOT NULL,
    request_id  TEXT COLLATE "C" NOT NULL,
    approval_id TEXT COLLATE "C" NOT NULL,
    actor       TEXT COLLATE "C" NOT NULL,
    granted_at  TEXT COLLATE "C" NOT NULL,
    expires_at  TEXT COLLATE "C" NOT NULL,
    revoked_at  TEXT COLLATE "C" NOT NULL
);

CREATE TABLE limits (
    namespace  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    changed_at TEXT COLLATE "C" NOT NULL,
    kept       TEXT COLLATE "C" NOT NULL
);

CREATE TABLE signals (
    topic   TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
);

CREATE TABLE packages (
    namespace TEXT COLLATE "C" NOT NULL,
    language  TEXT COLLATE "C" NOT NULL,
    digest    TEXT COLLATE "C" NOT NULL,
    added_at  TEXT COLLATE "C" NOT NULL,
    requested TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, language, digest)
);

-- +goose Down

DROP TABLE database_id, packages, signals, limits, grants, approvals, vault_recipient, secrets, sessions, servers, artifacts, kept_bytes, executions,
    audit_dropped, audit_rotations, audit_checkpoints, audit;
DROP FUNCTION executions_count_bytes, audit_checkpoints_drop, audit_drop, audit_append, audit_is_append_only;
