package workflow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/postgres"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// schema keeps the engine's tables apart from others in the same database.
	schema = "decamp_flow"

	// poolSize is the maximum number of connections of an executor, unless the URL sets pool_max_conns.
	// One of them listens; the others are busy for milliseconds at a time.
	poolSize = 8

	// openTimeout is how long Open waits for the database. Later the engine waits without a limit.
	openTimeout = 10 * time.Second

	// connectTimeout bounds a patient dial. The pool interprets zero as two minutes.
	connectTimeout = 24 * time.Hour

	// connectionFailure is the SQLSTATE of a lost connection, which the engine waits for.
	connectionFailure = "08006"
)

// database is the PostgreSQL database that several executors share. It is safe for concurrent use.
type database struct {
	*pgxpool.Pool
	dialer *dialer // opens the connections of the pool
	hosts  int     // number of hosts in the URL
}

// openPostgres opens the database at url. It returns fault.Unreachable if the database does not respond
// within openTimeout, fault.Invalid for an invalid url, and fault.Denied if the server would not be
// verified, unless insecure is set.
func openPostgres(ctx context.Context, url, executor string, insecure bool) (*database, error) {
	if !insecure {
		url = postgres.WithMode(url)
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err == nil && !strings.HasPrefix(url, "postgres") {
		err = errors.New("it is not of PostgreSQL")
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "read the database's URL: %w", err).
			WithHint("it looks like postgres://USER@HOST:5432/DATABASE?sslmode=verify-full")
	}
	if !insecure {
		if err := postgres.Check(&cfg.ConnConfig.Config); err != nil {
			return nil, err
		}
	}
	if !strings.Contains(url, "pool_max_conns") {
		cfg.MaxConns = poolSize
	}
	p := &database{dialer: newDialer()}
	p.configureConn(&cfg.ConnConfig.Config, executor)
	if p.Pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := p.ping(ctx, cfg.ConnConfig.Host); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// configureConn sets how connections are opened and which errors close them. The dialer resolves names
// itself, so that it tries all addresses of a host before it waits.
func (p *database) configureConn(c *pgconn.Config, executor string) {
	c.RuntimeParams["application_name"] = appName + " " + executor
	c.DialFunc = p.dialer.dial
	c.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	c.OnPgError = keepConnection
	c.ConnectTimeout = connectTimeout
	hosts := map[string]bool{c.Host: true}
	for _, f := range c.Fallbacks {
		hosts[f.Host] = true
	}
	p.hosts = len(hosts)
}

// ping returns fault.Unreachable if the database does not respond within openTimeout. host is for the
// error only.
func (p *database) ping(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := p.Ping(ctx); err != nil {
		return fault.New(fault.Unreachable, "open database on %s: %w", host, err).
			WithHint("see that PostgreSQL runs on %s, and that this machine and user may log in", host)
	}
	return nil
}

// setPatient switches waiting for an unreachable database on or off. If the URL has several hosts, they
// are tried one after the other instead, with the engine's pauses.
func (p *database) setPatient(on bool) { p.dialer.patient.Store(on && p.hosts == 1) }

// keepConnection reports whether the connection stays open after error e. It closes the connection
// after errors that do not concern the statement: they then count as lost connections, so that the
// statement is repeated instead of failing the run. Other errors close it only if they are fatal, as in
// the driver.
func keepConnection(_ *pgconn.PgConn, e *pgconn.PgError) bool {
	if isServerState(e.Code) {
		e.Code = connectionFailure
		return false
	}
	return !strings.EqualFold(e.Severity, "FATAL")
}

// isServerState reports whether an error concerns the state of the server and not the statement, by its
// SQLSTATE (PostgreSQL's documentation, appendix A).
func isServerState(code string) bool {
	switch code {
	case "25006", // read-only: it was made a standby
		"40001", "40P01", // serialization, deadlock
		"57014": // canceled by an administrator or a timeout
		return true
	}
	for _, class := range []string{"53", "57P", "58"} { // resources, shutdown, input and output
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}

const (
	// migrationLock is the key of the advisory lock under which the tables are made.
	migrationLock = 0x6465_6361_6d70 // "decamp"

	lockPause = 100 * time.Millisecond // lockPause is the pause between two attempts to get the migration lock.
)

// withMigrationLock runs fn while no other process of this database does: the engine's own migrations
// fail if two begin at once. It polls the lock: a waiting statement would delay the indexes that are
// built meanwhile.
func (p *database) withMigrationLock(ctx context.Context, fn func() error) error {
	c, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	for got := false; !got; {
		if err := c.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", migrationLock).Scan(&got); err != nil {
			return err
		}
		if !got && !sleepFor(ctx, lockPause) {
			return ctx.Err()
		}
	}
	err = fn()
	_, uerr := c.Exec(ctx, "SELECT pg_advisory_unlock($1)", migrationLock)
	return errors.Join(err, uerr)
}
