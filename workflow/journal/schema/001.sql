-- Times named *_at are UTC text for people. Where freshness matters there is a
-- boot id and CLOCK_BOOTTIME in nanoseconds beside it. JSON columns hold what
-- only the workflow reads; everything that is selected by has a column.

CREATE TABLE environments (
	id          TEXT    NOT NULL PRIMARY KEY,
	name        TEXT    NOT NULL,
	uid         INTEGER NOT NULL,
	gid         INTEGER NOT NULL,
	backend     TEXT    NOT NULL,
	base        TEXT    NOT NULL,
	description TEXT    NOT NULL,
	policy      TEXT    NOT NULL CHECK (json_valid(policy)),
	spec        TEXT    NOT NULL CHECK (json_valid(spec)),
	state       TEXT    NOT NULL,
	cycle       INTEGER NOT NULL CHECK (cycle >= 1),
	version     INTEGER NOT NULL CHECK (version >= 1),
	layer       TEXT    NOT NULL, -- digest of the layer the state speaks of
	exec_folded INTEGER NOT NULL, -- length of the exec log the state accounts for
	facts       TEXT    NOT NULL CHECK (json_valid(facts)),
	created_at  TEXT    NOT NULL,
	boot_id     TEXT    NOT NULL,
	boottime    INTEGER NOT NULL,
	tombstone   TEXT             -- when it ended; the name is free again
) STRICT;

CREATE UNIQUE INDEX environments_live ON environments (name) WHERE tombstone IS NULL;

-- The state of an environment that ended is history.
CREATE TRIGGER environments_ended BEFORE UPDATE ON environments
WHEN OLD.tombstone IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the environment has ended'); END;

CREATE TABLE events (
	seq      INTEGER NOT NULL PRIMARY KEY,
	env      TEXT    NOT NULL, -- environment id; empty for the host as a whole
	txn      TEXT    NOT NULL,
	event    TEXT    NOT NULL,
	actor    TEXT    NOT NULL,
	data     TEXT    NOT NULL CHECK (json_valid(data)),
	at       TEXT    NOT NULL,
	boot_id  TEXT    NOT NULL,
	boottime INTEGER NOT NULL,
	prev     TEXT    NOT NULL,
	hash     TEXT    NOT NULL
) STRICT;

CREATE INDEX events_env ON events (env, seq);
CREATE INDEX events_txn ON events (txn, seq) WHERE txn <> '';

-- Where the chain ends: without it the last events could go unnoticed.
CREATE TABLE chain (
	one  INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
	seq  INTEGER NOT NULL,
	hash TEXT    NOT NULL
) STRICT;

INSERT INTO chain (one, seq, hash) VALUES (1, 0, '');

CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;

CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;

-- INSERT OR REPLACE deletes without firing a delete trigger, so the position is
-- checked instead; it also keeps the sequence free of gaps.
CREATE TRIGGER events_in_order BEFORE INSERT ON events
WHEN NEW.seq IS NOT (SELECT seq + 1 FROM chain) OR NEW.prev IS NOT (SELECT hash FROM chain)
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;

CREATE TRIGGER events_advance AFTER INSERT ON events
BEGIN UPDATE chain SET seq = NEW.seq, hash = NEW.hash; END;

CREATE TABLE circuits (
	env        TEXT NOT NULL REFERENCES environments (id),
	id         TEXT NOT NULL,
	label      TEXT NOT NULL,
	definition TEXT NOT NULL CHECK (json_valid(definition)),
	created_at TEXT NOT NULL,
	removed_at TEXT
) STRICT;

CREATE UNIQUE INDEX circuits_id ON circuits (env, id) WHERE removed_at IS NULL;
CREATE UNIQUE INDEX circuits_label ON circuits (env, label) WHERE removed_at IS NULL;

CREATE TABLE observations (
	seq       INTEGER NOT NULL PRIMARY KEY,
	env       TEXT    NOT NULL REFERENCES environments (id),
	circuit   TEXT    NOT NULL,
	purpose   TEXT    NOT NULL,
	layer     TEXT    NOT NULL,
	result    TEXT    NOT NULL,
	reason    TEXT    NOT NULL,
	sensitive INTEGER NOT NULL,
	took      INTEGER NOT NULL,
	evidence  TEXT    NOT NULL CHECK (json_valid(evidence)),
	at        TEXT    NOT NULL,
	boot_id   TEXT    NOT NULL,
	boottime  INTEGER NOT NULL
) STRICT;

CREATE INDEX observations_latest ON observations (env, purpose, layer, circuit, seq);

CREATE TABLE origins (
	env      TEXT    NOT NULL REFERENCES environments (id),
	kind     TEXT    NOT NULL,
	key      TEXT    NOT NULL,
	data     TEXT    NOT NULL CHECK (json_valid(data)),
	at       TEXT    NOT NULL,
	boot_id  TEXT    NOT NULL,
	boottime INTEGER NOT NULL,
	PRIMARY KEY (env, kind, key)
) STRICT;

CREATE TABLE plans (
	seq      INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	env      TEXT    NOT NULL REFERENCES environments (id),
	cycle    INTEGER NOT NULL,
	digest   TEXT    NOT NULL,
	layer    TEXT    NOT NULL,
	path     TEXT    NOT NULL,
	summary  TEXT    NOT NULL CHECK (json_valid(summary)),
	at       TEXT    NOT NULL,
	boot_id  TEXT    NOT NULL,
	boottime INTEGER NOT NULL
) STRICT;

CREATE INDEX plans_current ON plans (env, cycle, seq);

CREATE TABLE grants (
	seq      INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	id       TEXT    NOT NULL UNIQUE,
	env      TEXT    NOT NULL REFERENCES environments (id),
	cycle    INTEGER NOT NULL,
	plan     TEXT    NOT NULL,
	level    TEXT    NOT NULL,
	by       TEXT    NOT NULL,
	how      TEXT    NOT NULL,
	boot_id  TEXT    NOT NULL,
	expires  INTEGER NOT NULL, -- CLOCK_BOOTTIME
	at       TEXT    NOT NULL,
	until    TEXT    NOT NULL,
	used_by  TEXT    NOT NULL, -- transaction id
	revoked  TEXT    NOT NULL  -- why
) STRICT;

CREATE INDEX grants_env ON grants (env, seq);

CREATE TABLE transactions (
	seq        INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	id         TEXT    NOT NULL UNIQUE,
	env        TEXT    NOT NULL REFERENCES environments (id),
	cycle      INTEGER NOT NULL,
	plan       TEXT    NOT NULL,
	grant_id   TEXT    NOT NULL,
	status     TEXT    NOT NULL,
	path       TEXT    NOT NULL, -- the transaction file: the truth this row indexes
	detail     TEXT    NOT NULL CHECK (json_valid(detail)),
	updated_at TEXT    NOT NULL,
	at         TEXT    NOT NULL,
	boot_id    TEXT    NOT NULL,
	boottime   INTEGER NOT NULL
) STRICT;

CREATE INDEX transactions_env ON transactions (env, seq);
CREATE INDEX transactions_status ON transactions (status, seq);

CREATE TABLE resources (
	id         INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	env        TEXT    NOT NULL,
	kind       TEXT    NOT NULL,
	name       TEXT    NOT NULL,
	data       TEXT    NOT NULL,
	status     TEXT    NOT NULL CHECK (status IN ('recorded', 'made', 'gone')),
	updated_at TEXT    NOT NULL,
	at         TEXT    NOT NULL,
	boot_id    TEXT    NOT NULL,
	boottime   INTEGER NOT NULL
) STRICT;

CREATE INDEX resources_live ON resources (env, status) WHERE status <> 'gone';
