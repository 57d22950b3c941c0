package postgres

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/decamp/decamp/internal/fault"
)

// unsetPostgresEnv unsets the environment variables that affect the parsing of URLs.
func unsetPostgresEnv(t *testing.T) {
	for _, name := range []string{"PGHOST", "PGPORT", "PGSSLMODE", "PGSSLROOTCERT", "PGSERVICE", "PGSERVICEFILE", "PGSSLNEGOTIATION", "PGSSLSNI"} {
		t.Setenv(name, "")
		must(t, os.Unsetenv(name))
	}
	t.Setenv("HOME", t.TempDir())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Check uses the parsed configuration, so that the source of a mode or a host makes no difference.
func TestUnverifiedDatabaseIsRefused(t *testing.T) {
	service := filepath.Join(t.TempDir(), "services")
	must(t, os.WriteFile(service, []byte("[weak]\nhost=db.example.com\nsslmode=require\n[local]\nhost=/run/postgresql\n"), 0o600))
	for _, c := range []struct {
		url     string
		env     map[string]string
		accepts bool
	}{
		{url: "postgres://u@db.example.com/d", accepts: true}, // becomes verify-full
		{url: "postgres://u@db.example.com/d?sslmode=verify-full", accepts: true},
		{url: "postgres://u@192.0.2.7/d?sslmode=verify-full&sslsni=0", accepts: true},
		{url: "postgres://u@db.example.com/d?sslmode=disable"},
		{url: "postgres://u@db.example.com/d?sslmode=allow"},
		{url: "postgres://u@db.example.com/d?sslmode=prefer"},
		{url: "postgres://u@db.example.com/d?sslmode=require"},
		{url: "postgres://u@db.example.com/d?sslmode=verify-ca"},
		{url: "postgres://u@db.example.com/d?ssl%6Dode=require"},
		{url: "postgres://u@db.example.com/d?sslmode=require&sslmode=verify-full", accepts: true}, // the last one counts
		{url: "postgres://u@db.example.com/d?sslmode=verify-full&sslmode=require"},
		{url: "postgres://u@db.example.com/d?ssl=true"}, // means sslmode=require
		{url: "postgres://u@db.example.com/d?sslnegotiation=direct&sslmode=require"},
		{url: "postgres://u@db.example.com/d#sslmode=disable", accepts: true}, // part of the database name; becomes verify-full
		{url: "postgres://u@db.example.com/d", env: map[string]string{"PGSSLMODE": "require"}},
		{url: "postgres://u@db.example.com/d", env: map[string]string{"PGSSLMODE": "verify-full"}, accepts: true},
		{url: "postgres://u@db.example.com/d?sslmode=verify-full", env: map[string]string{"PGSSLMODE": "disable"}, accepts: true},

		{url: "postgres://u@127.0.0.1/d", accepts: true},
		{url: "postgres://u@127.8.9.1:5433/d?sslmode=disable", accepts: true},
		{url: "postgres://u@[::1]/d?sslmode=disable", accepts: true},
		{url: "postgres://u@localhost/d?sslmode=disable", accepts: true},
		{url: "postgres:///d?host=/run/postgresql", accepts: true},
		{url: "postgres://u@localhost.example.com/d?sslmode=disable"},
		{url: "postgres://u@[::2]/d?sslmode=disable"},
		{url: "postgres://u@0.0.0.0/d?sslmode=disable"},
		{url: "postgres://u@127.0.0.1/d?host=db.example.com&sslmode=disable"},
		{url: "postgres:///d?sslmode=disable", env: map[string]string{"PGHOST": "db.example.com"}},
		{url: "postgres:///d?sslmode=disable", env: map[string]string{"PGHOST": "127.0.0.1"}, accepts: true},

		{url: "postgres://u@127.0.0.1:1,db.example.com:2/d?sslmode=disable"},
		{url: "postgres://u@db.example.com:1,127.0.0.1:2/d?sslmode=prefer"},
		{url: "postgres://u@a.example.com:1,b.example.com:2/d", accepts: true},
		{url: "postgres://u@/d?host=127.0.0.1,db.example.com&sslmode=disable"},

		{url: "postgres:///d?service=weak&servicefile=" + service, accepts: true}, // becomes verify-full
		{url: "postgres:///d?service=weak&sslmode=require&servicefile=" + service},
		{url: "postgres:///d", env: map[string]string{"PGSERVICE": "weak", "PGSERVICEFILE": service, "PGSSLMODE": "require"}},
		{url: "postgres:///d?service=local&servicefile=" + service, accepts: true},
	} {
		t.Run(strings.NewReplacer("/", "_", "?", " ").Replace(c.url), func(t *testing.T) {
			unsetPostgresEnv(t)
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			cfg, err := pgconn.ParseConfig(WithMode(c.url))
			must(t, err)
			err = Check(cfg)
			switch {
			case c.accepts && err != nil:
				t.Errorf("refused: %v", err)
			case !c.accepts && (!fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "verify-full") || !strings.Contains(fault.HintOf(err), "--insecure-database")):
				t.Errorf("error %v (hint %q), want Denied with the hint", err, fault.HintOf(err))
			}
		})
	}
}

// WithMode does not change the URL of a host on this machine, or an invalid URL.
func TestModeIsAddedIfItIsNeeded(t *testing.T) {
	unsetPostgresEnv(t)
	for url, want := range map[string]string{
		"postgres://u@db/d":                   "postgres://u@db/d?sslmode=verify-full",
		"postgres://u@db/d?connect_timeout=3": "postgres://u@db/d?sslmode=verify-full&connect_timeout=3",
		"postgres://u@127.0.0.1/d":            "postgres://u@127.0.0.1/d",
		"postgres://u@db/d?sslmode=what":      "postgres://u@db/d?sslmode=what",
		"postgres://%":                        "postgres://%",
	} {
		if got := WithMode(url); got != want {
			t.Errorf("WithMode(%q) = %q, want %q", url, got, want)
		}
	}
}
