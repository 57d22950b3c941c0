package postgres

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// A Shared is one server for all tests of a package that do not stop it. Each of them has a separate database,
// which a later test may get empty: the files of a new one cost more than its contents.
type Shared struct {
	mu     sync.Mutex
	server *Server  // nil before the first database
	names  []string // databases that were created
	unused []string // databases of tests that ended
	ends   []func() // cleanups of the server, which End calls in reverse order
}

// NewDatabase returns the connection URL of an empty database. The first call starts the server.
func (s *Shared) NewDatabase(t testing.TB) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		s.server = Start(packageTB{t, s})
	}
	var name string
	if n := len(s.unused); n > 0 {
		name, s.unused = s.unused[n-1], s.unused[:n-1]
	} else {
		name = fmt.Sprint("test", len(s.names)+1)
		s.server.createDatabase(t, name)
		s.names = append(s.names, name)
	}
	url := s.server.databaseURL(name)
	t.Cleanup(func() {
		if err := empty(url); err != nil {
			t.Errorf("empty the database of the test: %v", err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unused = append(s.unused, name)
	})
	return url
}

// emptying removes all that a database has. It ends the connections that the test left first: they may hold locks.
const emptying = `
	SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
	DO $$ DECLARE name text; BEGIN
		FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
			EXECUTE format('DROP SCHEMA %I CASCADE', name);
		END LOOP;
		CREATE SCHEMA public;
	END $$`

// empty removes all that the database at url has.
func empty(url string) error { return query(url, "SET client_min_messages = warning;"+emptying) }

// End stops the server and removes its data. TestMain calls it after the last test.
func (s *Shared) End() {
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
}

// packageTB is a test whose cleanups wait for Shared.End.
type packageTB struct {
	testing.TB
	shared *Shared // receives the cleanups
}

func (t packageTB) Cleanup(f func()) { t.shared.ends = append(t.shared.ends, f) }

// NewDatabase creates a database and returns its connection URL.
func (s *Server) NewDatabase(name string) string {
	s.t.Helper()
	s.createDatabase(s.t, name)
	return s.databaseURL(name)
}

// createDatabase creates a database for a test that may share the server.
func (s *Server) createDatabase(t testing.TB, name string) {
	t.Helper()
	if err := query(s.URL(), "create database "+name); err != nil {
		t.Fatalf("create database: %v", err)
	}
}

// databaseURL returns the connection URL of a database.
func (s *Server) databaseURL(name string) string {
	return strings.Replace(s.URL(), "/postgres?", "/"+name+"?", 1)
}
