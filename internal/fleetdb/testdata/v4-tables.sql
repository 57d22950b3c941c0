CREATE TABLE meta (id BIGINT PRIMARY KEY, version BIGINT NOT NULL, rev BIGINT NOT NULL, entry BIGINT NOT NULL);
INSERT INTO meta VALUES (1, 0, 0, 0);
CREATE TABLE plans (
		name    TEXT   PRIMARY KEY,
		text    TEXT   NOT NULL,
		folder  TEXT   NOT NULL,
		author  TEXT   NOT NULL,
		created BIGINT NOT NULL,
		listed  BIGINT NOT NULL DEFAULT 0,
		ord     TEXT   NOT NULL DEFAULT '',
		state   TEXT   NOT NULL,
		failure TEXT   NOT NULL DEFAULT '',
		ended   BIGINT NOT NULL DEFAULT 0,
		rev     BIGINT NOT NULL);
CREATE TABLE dropped (name TEXT PRIMARY KEY, rev BIGINT NOT NULL);
CREATE TABLE vms (
		plan       TEXT    NOT NULL,
		vm         TEXT    NOT NULL,
		seq        BIGINT  NOT NULL,
		warm       BOOLEAN NOT NULL,
		listing    TEXT    NOT NULL,
		spec       TEXT    NOT NULL,
		state      TEXT    NOT NULL,
		step       TEXT    NOT NULL DEFAULT '',
		waits      TEXT    NOT NULL DEFAULT '',
		worker     TEXT    NOT NULL DEFAULT '',
		storage    TEXT    NOT NULL DEFAULT '',
		epoch      BIGINT  NOT NULL DEFAULT 0,
		asks       TEXT    NOT NULL DEFAULT '',
		holds      BOOLEAN NOT NULL DEFAULT FALSE,
		since      BIGINT  NOT NULL DEFAULT 0,
		expected   BIGINT  NOT NULL DEFAULT 0,
		ord        TEXT    NOT NULL DEFAULT '',
		attempts   BIGINT  NOT NULL DEFAULT 0,
		not_before BIGINT  NOT NULL DEFAULT 0,
		began      BIGINT  NOT NULL DEFAULT 0,
		ended      BIGINT  NOT NULL DEFAULT 0,
		failure    TEXT    NOT NULL DEFAULT '',
		rev        BIGINT  NOT NULL,
		PRIMARY KEY (plan, vm));
CREATE INDEX vms_rev ON vms (rev);
CREATE INDEX vms_state ON vms (state, plan);
CREATE INDEX vms_seq ON vms (plan, seq);
CREATE TABLE leases (
		name  TEXT   PRIMARY KEY,
		owner TEXT   NOT NULL,
		epoch BIGINT NOT NULL,
		until BIGINT NOT NULL);
CREATE TABLE workers (
		name    TEXT    PRIMARY KEY,
		version TEXT    NOT NULL,
		offers  TEXT    NOT NULL,
		vms     BIGINT  NOT NULL,
		drains  BOOLEAN NOT NULL,
		rev     BIGINT  NOT NULL);
CREATE TABLE limits (name TEXT PRIMARY KEY, units BIGINT NOT NULL, rev BIGINT NOT NULL);
CREATE TABLE progress (
		plan TEXT   NOT NULL,
		vm   TEXT   NOT NULL,
		at   BIGINT NOT NULL,
		doc  TEXT   NOT NULL,
		PRIMARY KEY (plan, vm));
CREATE TABLE audit (id BIGINT PRIMARY KEY, at BIGINT NOT NULL, doc TEXT NOT NULL);
CREATE TABLE records (
		kind TEXT NOT NULL,
		id   TEXT NOT NULL,
		doc  TEXT NOT NULL,
		PRIMARY KEY (kind, id));
CREATE TABLE board (id BIGINT PRIMARY KEY, at BIGINT NOT NULL, doc TEXT NOT NULL, looked BIGINT NOT NULL);
INSERT INTO board VALUES (1, 0, '', 0);
ALTER TABLE vms ADD COLUMN rehearse TEXT NOT NULL DEFAULT '';
ALTER TABLE plans ADD COLUMN role TEXT NOT NULL DEFAULT '';
ALTER TABLE plans ADD COLUMN signature TEXT NOT NULL DEFAULT '';
ALTER TABLE vms ADD COLUMN signature TEXT NOT NULL DEFAULT '';
ALTER TABLE meta ADD COLUMN oldest BIGINT NOT NULL DEFAULT 4;
CREATE TABLE counters (name TEXT NOT NULL, label TEXT NOT NULL, value DOUBLE PRECISION NOT NULL, PRIMARY KEY (name, label));
CREATE TABLE notifications (
		receiver   TEXT   NOT NULL,
		id         TEXT   NOT NULL,
		doc        TEXT   NOT NULL,
		state      TEXT   NOT NULL,
		created    BIGINT NOT NULL,
		attempts   BIGINT NOT NULL DEFAULT 0,
		not_before BIGINT NOT NULL DEFAULT 0,
		failure    TEXT   NOT NULL DEFAULT '',
		PRIMARY KEY (receiver, id));
CREATE INDEX notifications_due ON notifications (receiver, state, not_before);
CREATE INDEX notifications_created ON notifications (created);
