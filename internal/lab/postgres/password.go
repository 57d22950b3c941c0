package postgres

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
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
	for began := time.Now(); s.psqlCommand("select 1").Run() == nil; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > patience {
			s.t.Fatal("postgres still requires no password")
		}
	}
}

// mustQuery executes a statement; an error ends the test.
func (s *Server) mustQuery(sql string) {
	s.t.Helper()
	if out, err := s.psqlCommand(sql).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v: %s", sql, err, out)
	}
}

// psqlCommand returns a psql that executes a statement without a password.
func (s *Server) psqlCommand(sql string) *exec.Cmd {
	cmd := exec.Command("psql", "-X", "-w", "-d", s.URL(), "-c", sql)
	cmd.Env = append(os.Environ(), "PGPASSWORD=", "PGPASSFILE=/dev/null")
	return cmd
}
