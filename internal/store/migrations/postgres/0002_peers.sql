-- +goose Up

-- Where the servers of this database reach each other. A row counts while its owner's lease is held. See
-- package session.
CREATE TABLE peers (
    owner   TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    address TEXT COLLATE "C" NOT NULL
);

-- +goose Down

DROP TABLE peers;
