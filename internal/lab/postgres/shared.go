package postgres

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// A Shared is one server for all tests of a package that do not stop it. Each of them has a separate database.
type Shared struct {
	mu        sync.Mutex
	server    *Server  // nil before the first database
	databases int      // number of databases that were created
	ends      []func() // cleanups of the server, which End calls in reverse order
}

// NewDatabase creates a database and returns its connection URL. The first call starts the server.
func (s *Shared) NewDatabase(t testing.TB) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		s.server = Start(packageTB{t, s})
	}
	s.databases++
	return s.server.newDatabase(t, fmt.Sprint("test", s.databases))
}

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
	return s.newDatabase(s.t, name)
}

// newDatabase is NewDatabase for a test that shares the server.
func (s *Server) newDatabase(t testing.TB, name string) string {
	t.Helper()
	if err := s.query("create database " + name); err != nil {
		t.Fatalf("create database: %v", err)
	}
	return strings.Replace(s.URL(), "/postgres?", "/"+name+"?", 1)
}
