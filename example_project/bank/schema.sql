CREATE TABLE IF NOT EXISTS entry (
    id        INTEGER PRIMARY KEY,
    kind      TEXT    NOT NULL CHECK (kind IN ('charge', 'refund')),
    order_ref TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    cents     INTEGER NOT NULL CHECK (cents > 0),
    refunds   INTEGER UNIQUE REFERENCES entry (id),  -- UNIQUE: a charge is refunded once
    at        REAL    NOT NULL,
    CHECK ((kind = 'refund') = (refunds IS NOT NULL))
);
CREATE INDEX IF NOT EXISTS entry_key ON entry (key);

CREATE TABLE IF NOT EXISTS answer (
    key         TEXT    PRIMARY KEY,
    fingerprint TEXT    NOT NULL,
    status      INTEGER NOT NULL,
    body        TEXT    NOT NULL,
    at          REAL    NOT NULL
);

CREATE TABLE IF NOT EXISTS tombstone (
    key TEXT PRIMARY KEY,
    at  REAL NOT NULL
);

CREATE TABLE IF NOT EXISTS sighting (
    key   TEXT    PRIMARY KEY,
    kind  TEXT    NOT NULL,
    times INTEGER NOT NULL
);
