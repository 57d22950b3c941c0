package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// SetPassword requires this password for all connections from now on. It returns when the server
// rejects connections without it.
func (s *Server) SetPassword(password string) {
	s.t.Helper()
	s.mustQuery(fmt.Sprintf("alter role decamp password '%s'", password))
	rule := []byte("host all all 127.0.0.1/32 scram-sha-256\n")
	if err := os.WriteFile(filepath.Join(s.dir, "data", "pg_hba.conf"), rule, 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.mustQuery("select pg_reload_conf()")
	const patience = time.Minute
	for began := time.Now(); query(s.URL(), "select 1") == nil; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > patience {
			s.t.Fatal("postgres still requires no password")
		}
	}
}

// mustQuery executes a statement; an error ends the test.
func (s *Server) mustQuery(sql string) {
	s.t.Helper()
	if err := query(s.URL(), sql); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// query executes statements in the database at url, without a password.
func query(url, sql string) error {
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		return err
	}
	cfg.Password = ""
	ctx := context.Background() // cleanups may use the server, too
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(conn.Exec(ctx, sql).Close(), conn.Close(ctx))
}
