-- A journal of schema version 1 as sqlite3 dumps it. It is never edited: every
-- later version must open it.
BEGIN TRANSACTION;
CREATE TABLE chain (
	one  INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
	seq  INTEGER NOT NULL,
	hash TEXT    NOT NULL
) STRICT;
INSERT INTO "chain" VALUES(1,3,'27d8fb09ed59b9acd6baf00a6d69806ec72180ecb79ac5fec02bcd721191f6e9');
CREATE TABLE circuits (
	env        TEXT NOT NULL REFERENCES environments (id),
	id         TEXT NOT NULL,
	label      TEXT NOT NULL,
	definition TEXT NOT NULL CHECK (json_valid(definition)),
	created_at TEXT NOT NULL,
	removed_at TEXT
) STRICT;
INSERT INTO "circuits" VALUES('01JGFSVF0000000000000000AA','c1','api','{"id":"c1","label":"api","kind":"canary","required":true,"argv":["curl","http://api"],"uid":1000,"gid":0}','2026-01-02T03:04:10.000000006Z',NULL);
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
INSERT INTO "environments" VALUES('01JGFSVF0000000000000000AA','edge-proxy',1000,1000,'linux','/','proxy','{"authority":"root"}','{"name":"edge-proxy"}','checked',1,2,'sha256:aa',120,'{}','2026-01-02T03:04:06.000000006Z','boot',1000000000,NULL);
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
INSERT INTO "events" VALUES(1,'01JGFSVF0000000000000000AA','','exec.started','uid 1000','{"to":"checked"}','2026-01-02T03:04:07.000000006Z','boot',2000000000,'','1bd615a21e3813818ab8d9bfa6765fc75e143f70ec3843cfb2d6c7e790f14dac');
INSERT INTO "events" VALUES(2,'01JGFSVF0000000000000000AA','','circuit.checked','uid 1000','{"to":"checked"}','2026-01-02T03:04:08.000000006Z','boot',3000000000,'1bd615a21e3813818ab8d9bfa6765fc75e143f70ec3843cfb2d6c7e790f14dac','9526626b0c78611f0174475e88f0e16211ea1439aac43e0faea0276af0042c94');
INSERT INTO "events" VALUES(3,'01JGFSVF0000000000000000AA','','state.moved','uid 1000','{"to":"checked"}','2026-01-02T03:04:09.000000006Z','boot',4000000000,'9526626b0c78611f0174475e88f0e16211ea1439aac43e0faea0276af0042c94','27d8fb09ed59b9acd6baf00a6d69806ec72180ecb79ac5fec02bcd721191f6e9');
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
INSERT INTO "grants" VALUES(1,'g1','01JGFSVF0000000000000000AA',1,'sha256:bb','root','uid 0','--yes','boot',600000000000,'','','','');
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
INSERT INTO "observations" VALUES(1,'01JGFSVF0000000000000000AA','c1','check','sha256:aa','Preserved','',0,0,'{}','2026-01-02T03:04:11.000000006Z','boot',6000000000);
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
INSERT INTO "origins" VALUES('01JGFSVF0000000000000000AA','file','/etc/hosts','{}','2026-01-02T03:04:12.000000006Z','boot',7000000000);
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
INSERT INTO "plans" VALUES(1,'01JGFSVF0000000000000000AA',1,'sha256:bb','sha256:aa','plans/bb','{}','2026-01-02T03:04:13.000000006Z','boot',8000000000);
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
INSERT INTO "resources" VALUES(1,'01JGFSVF0000000000000000AA','cgroup','netsandbox-edge-proxy','','recorded','2026-01-02T03:04:15.000000006Z','2026-01-02T03:04:15.000000006Z','boot',10000000000);
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
INSERT INTO "transactions" VALUES(1,'apply-1','01JGFSVF0000000000000000AA',1,'sha256:bb','g1','undone','txn/1','{}','2026-01-02T03:04:14.000000006Z','2026-01-02T03:04:14.000000006Z','boot',9000000000);
CREATE UNIQUE INDEX environments_live ON environments (name) WHERE tombstone IS NULL;
CREATE TRIGGER environments_ended BEFORE UPDATE ON environments
WHEN OLD.tombstone IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the environment has ended'); END;
CREATE INDEX events_env ON events (env, seq);
CREATE INDEX events_txn ON events (txn, seq) WHERE txn <> '';
CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER events_in_order BEFORE INSERT ON events
WHEN NEW.seq IS NOT (SELECT seq + 1 FROM chain) OR NEW.prev IS NOT (SELECT hash FROM chain)
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER events_advance AFTER INSERT ON events
BEGIN UPDATE chain SET seq = NEW.seq, hash = NEW.hash; END;
CREATE UNIQUE INDEX circuits_id ON circuits (env, id) WHERE removed_at IS NULL;
CREATE UNIQUE INDEX circuits_label ON circuits (env, label) WHERE removed_at IS NULL;
CREATE INDEX observations_latest ON observations (env, purpose, layer, circuit, seq);
CREATE INDEX plans_current ON plans (env, cycle, seq);
CREATE INDEX grants_env ON grants (env, seq);
CREATE INDEX transactions_env ON transactions (env, seq);
CREATE INDEX transactions_status ON transactions (status, seq);
CREATE INDEX resources_live ON resources (env, status) WHERE status <> 'gone';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('plans',1);
INSERT INTO "sqlite_sequence" VALUES('grants',1);
INSERT INTO "sqlite_sequence" VALUES('transactions',1);
INSERT INTO "sqlite_sequence" VALUES('resources',1);
COMMIT;
