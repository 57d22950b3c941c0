package fleetdb

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/postgres"
)

const (
	postgresConns   = 8               // maximum number of connections
	postgresIdle    = 4               // connections that stay open without use
	postgresConnect = 5 * time.Second // time limit of a connection attempt, unless the URL sets one

	// postgresKey is the advisory lock for the creation of the tables: "fleet" in ASCII. Package
	// workflow uses another one: its holder builds indexes, which would wait for the waiters of this
	// lock.
	postgresKey = 0x666c656574
)

// postgresDialect is the SQL of PostgreSQL.
var postgresDialect = dialect{
	now:             `CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)`,
	expandArray:     `json_array_elements($1::json)`,
	reading:         &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead},
	relaxDurability: `SET LOCAL synchronous_commit = off`,
	lockAndFind:     postgresFound,
	fault:           postgresFault,
}

// postgresParams are the session parameters, unless the URL sets them.
var postgresParams = map[string]string{
	"application_name": "decamp",

	// A process that is suspended within a transaction would stop all others.
	"idle_in_transaction_session_timeout": "5s",
}

// openPostgres creates the pool; it does not connect yet. It returns fault.Denied if the server would
// not be verified, unless the database is insecure.
func (d *database) openPostgres(url string) error {
	if !d.insecure {
		url = postgres.WithMode(url)
	}
	cfg, err := pgx.ParseConfig(url)
	if err != nil { // pgx keeps the password out of the error's text
		return fault.New(fault.Invalid, "read the database's address: %w", err).WithHint("as in postgres://USER@HOST/DATABASE, with the password in ~/.pgpass")
	}
	if !d.insecure {
		if err := postgres.Check(&cfg.Config); err != nil {
			return err
		}
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = postgresConnect
	}
	for name, value := range postgresParams {
		if cfg.RuntimeParams[name] == "" {
			cfg.RuntimeParams[name] = value
		}
	}
	cfg.RuntimeParams["search_path"] = "decamp"
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(postgresConns)
	db.SetMaxIdleConns(postgresIdle)
	d.kind, d.durable, d.loose, d.read = &postgresDialect, db, db, db
	return nil
}

// postgresFound takes an advisory lock until the end of the transaction, and creates the schema if it
// does not exist.
func postgresFound(ctx context.Context, t *sql.Tx) (bool, error) {
	if _, err := t.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, postgresKey); err != nil {
		return false, err
	}
	var schema, meta bool
	err := t.QueryRowContext(ctx, `SELECT to_regnamespace('decamp') IS NOT NULL, to_regclass('decamp.meta') IS NOT NULL`).Scan(&schema, &meta)
	if err != nil || meta {
		return meta, err
	}
	if schema {
		var tables int
		err := t.QueryRowContext(ctx, `SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('decamp')`).Scan(&tables)
		if err != nil || tables == 0 {
			return false, err
		}
		return false, foreignError("its schema decamp has tables of something else")
	}
	_, err = t.ExecContext(ctx, `CREATE SCHEMA decamp`)
	return false, err
}

// postgresFault classifies PostgreSQL's error codes (appendix A of its manual). The first two
// characters of a code are its class.
func postgresFault(err error) (faultClass, bool) {
	var e *pgconn.PgError
	var connecting *pgconn.ConnectError
	switch {
	case errors.As(err, &e):
	case errors.As(err, &connecting) && isUnverified(err):
		return faultClass{kind: fault.Unreachable, hint: postgresUnverified}, true // waited for, as a database that is away
	case errors.As(err, &connecting):
		return faultClass{kind: fault.Unreachable, hint: postgresAway}, true
	case pgconn.SafeToRetry(err):
		return faultClass{kind: fault.Unreachable, hint: postgresAway, again: true}, true
	default:
		return faultClass{}, false
	}
	switch code := e.Code; {
	case code == "40001", code == "40P01", code == "55P03":
		return faultClass{kind: fault.Unreachable, hint: "try again", again: true}, true
	case code == "25P03": // idle_in_transaction_session_timeout
		return faultClass{kind: fault.Unreachable, hint: "this process was suspended; try again", again: true}, true
	case strings.HasPrefix(code, "08"), strings.HasPrefix(code, "57"):
		return faultClass{kind: fault.Unreachable, hint: postgresAway, again: true}, true
	case strings.HasPrefix(code, "53") && code != "53100", strings.HasPrefix(code, "58"):
		return faultClass{kind: fault.Unreachable, hint: postgresAway}, true
	case code == "53100":
		return faultClass{kind: fault.Full, hint: "free space for PostgreSQL's data; the fleet continues then"}, true
	case code == "25006":
		return faultClass{kind: fault.Unreachable, hint: "this PostgreSQL is a standby: name the primary, or add target_session_attrs=read-write"}, true
	case strings.HasPrefix(code, "28"), code == "42501":
		return faultClass{kind: fault.Denied, hint: "check the user and the password in ~/.pgpass; the user must be able to create a schema in the database"}, true
	case code == "3D000":
		return faultClass{kind: fault.NotFound, hint: "make it: createdb decamp"}, true
	case strings.HasPrefix(code, "XX"):
		return faultClass{kind: fault.Corrupt, hint: "look in PostgreSQL's log"}, true
	case strings.HasPrefix(code, "22"):
		return faultClass{kind: fault.Invalid}, true
	}
	return faultClass{}, false
}

// isUnverified reports whether a connection failed because TLS did not prove the identity of the
// server. The driver has no error value for a server without TLS, only a text.
func isUnverified(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate) || strings.Contains(err.Error(), "server refused TLS connection")
}

// postgresUnverified is the remedy if the server was not verified.
const postgresUnverified = "turn TLS on in PostgreSQL, with a certificate for the host name of the URL; for a private CA add sslrootcert=FILE to the URL"
