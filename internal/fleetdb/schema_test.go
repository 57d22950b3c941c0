package fleetdb

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

var update = flag.Bool("update", false, "update the files in testdata")

// execute executes SQL statements on an empty database, without Open.
func (p *testDatabase) execute(text string) {
	p.t.Helper()
	d := ok(openDatabase(Config{URL: p.url}))(p.t)
	defer d.close()
	for _, s := range strings.Split(text, ";\n") {
		if _, err := d.durable.ExecContext(p.t.Context(), s); err != nil {
			p.t.Fatalf("%s: %v", s, err)
		}
	}
}

// The changes that created the tables of a released version are never edited. Version 1 is from before the first
// release; 0.1.0 has version 4.
func TestTablesOfReleasesDoNotChange(t *testing.T) {
	for _, version := range []int{1, 4} {
		var b bytes.Buffer
		for _, s := range meta {
			b.WriteString(s + ";\n")
		}
		for _, change := range schemaChanges[:version] {
			for _, s := range change.statements {
				b.WriteString(s + ";\n")
			}
		}
		golden := filepath.Join("testdata", fmt.Sprintf("v%d-tables.sql", version))
		if *update {
			must(t, os.WriteFile(golden, b.Bytes(), 0o644))
		}
		if want := ok(os.ReadFile(golden))(t); !bytes.Equal(b.Bytes(), want) {
			t.Errorf("version %d has changed; add a version instead", version)
		}
	}
}

// This version opens a database of version 1 in the middle of a plan, and continues it.
func TestADatabaseOfVersion1IsRead(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		before := "PRAGMA application_id = 1684237680;\n"
		if strings.HasPrefix(p.url, "postgres") {
			before = "CREATE SCHEMA decamp;\n"
		}
		tables, rows := ok(os.ReadFile("testdata/v1-tables.sql"))(t), ok(os.ReadFile("testdata/v1-rows.sql"))(t)
		p.execute(before + string(tables) + strings.TrimSuffix(string(rows), ";\n"))
		ctx, r := t.Context(), p.open()
		plan, v := ok(r.Plans.Get(ctx, "wave1"))(t), ok(r.VMs.Get(ctx, Key{"wave1", "vm-42"}))(t)
		if plan.Command != Pause || plan.By != "ann" || plan.Counts[Running] != 1 || plan.Text != "version: 1" || plan.Listed.IsZero() {
			t.Errorf("plan %+v", plan)
		}
		if v.Name != "web1" || v.State != Running || v.Epoch != 3 || v.Storage[0] != "st-1" || !v.Granted || !v.Warm || v.Failure.Text != "no route" || string(v.Spec) != `{"to":["dir:/srv/vm"]}` || v.Began.IsZero() {
			t.Errorf("VM %+v", v)
		}
		must(t, r.Claims.SetStep(ctx, Claim{v.Key, "w1", 3}, "verify", ""))
		w, limits := ok(r.Workers.List(ctx))(t), ok(r.Limits.List(ctx))(t)
		if len(w) != 1 || w[0].Offers["/srv/vm"] != "st-1" || w[0].Epoch != 2 || len(limits) != 1 {
			t.Errorf("workers %+v, limits %+v", w, limits)
		}
		trail, progress, records := ok(r.Audit.List(ctx, 0, 9))(t), ok(r.Progress.List(ctx, "wave1"))(t), ok(r.Records.List(ctx, "leftover"))(t)
		if len(trail) != 1 || trail[0].User != "ann" || len(progress) != 1 || progress[0].Done != 5 || len(records) != 1 {
			t.Errorf("trail %+v, progress %+v, records %+v", trail, progress, records)
		}
	})
}

// A database that a newer, incompatible version has upgraded is refused and not changed.
func TestDatabaseOfNewerVersionIsNotChanged(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		r := p.open()
		ok(r.db.durable.Exec(`UPDATE meta SET version = 99, oldest = 98`))(t)
		before := p.dump(r)
		_, err := Open(t.Context(), Config{URL: p.url})
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "schema version 99") ||
			!strings.Contains(err.Error(), fmt.Sprintf("supports version %d", len(schemaChanges))) || !strings.Contains(fault.HintOf(err), "install the version of decamp") {
			t.Errorf("Open: got %v (hint %q), want Unsupported with both versions and a hint", err, fault.HintOf(err))
		}
		if after := p.dump(r); before != after {
			t.Errorf("the refused database was changed: before %s, after %s", before, after)
		}
	})
}

// A process has the database open while an incompatible version upgrades it. It writes nothing after that.
func TestAnOpenDatabaseIsUpgradedIncompatibly(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		r := p.open()
		ok(r.Plans.Add(t.Context(), Plan{Name: "p"}))(t)
		p.upgradeWith(nextChange(false))
		before := p.dump(r)
		_, err := r.Plans.Add(t.Context(), Plan{Name: "q"})
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), fmt.Sprintf("schema version %d", len(schemaChanges)+1)) {
			t.Errorf("Add: got %v, want Unsupported with the version", err)
		}
		if after := p.dump(r); before != after {
			t.Errorf("the refused database was changed: before %s, after %s", before, after)
		}
		ok(r.Plans.List(t.Context()))(t) // the process can still read
	})
}

// A compatible version upgrades the database. Processes of the version before continue, and can open it again.
func TestOldAndNewShareADatabase(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		old := p.open()
		ok(old.Plans.Add(t.Context(), Plan{Name: "p"}))(t)
		p.upgradeWith(nextChange(true))
		must(t, old.VMs.Add(t.Context(), someVMs("p", 2)))
		again := p.open()
		if got := ok(again.Plans.Get(t.Context(), "p"))(t).Counts[Queued]; got != 2 {
			t.Errorf("%d VMs are queued, want 2", got)
		}
		ok(old.Plans.Add(t.Context(), Plan{Name: "q"}))(t)
		if got := p.schemaVersions(old); got != fmt.Sprintf("%d %d", len(schemaChanges)+1, len(schemaChanges)) {
			t.Errorf("version and oldest are %s", got)
		}
	})
}

// A process that upgrades the database is killed before the upgrade is complete. The database is unchanged, and the
// next process upgrades it.
func TestAnUpgradeIsKilled(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		r := p.open()
		ok(r.Plans.Add(t.Context(), Plan{Name: "p"}))(t)
		before := p.dump(r)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childURL+"="+p.url, childUpgrades+"=1")
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || !strings.Contains(string(out), childUpgraded) {
			t.Fatalf("the process was not killed during its upgrade: %v\n%s", err, out)
		}
		if after := p.dump(r); before != after {
			t.Errorf("the upgrade changed the database: before %s, after %s", before, after)
		}
		p.upgradeWith(nextChange(true))
		if got := p.schemaVersions(r); got != fmt.Sprintf("%d %d", len(schemaChanges)+1, len(schemaChanges)) {
			t.Errorf("version and oldest are %s", got)
		}
	})
}

func TestUpgradeHasMoreTimeThanOtherTransactions(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		d := ok(openDatabase(Config{URL: p.url}))(t)
		defer d.close()
		wrapped, found := *d.kind, d.kind.lockAndFind
		wrapped.lockAndFind = func(ctx context.Context, tx *sql.Tx) (bool, error) {
			if end, limited := ctx.Deadline(); !limited || time.Until(end) < upgradePatience/2 {
				t.Errorf("the upgrade has %v; want more than %v", time.Until(end), patience)
			}
			return found(ctx, tx)
		}
		d.kind = &wrapped
		must(t, d.prepareSchema(t.Context()))
	})
}

// A server that accepts connections and sends nothing is reported after the time limit of a short transaction, not
// after that of the upgrade.
func TestOpenReportsUnresponsiveServer(t *testing.T) {
	silent := ok(net.Listen("tcp", "127.0.0.1:0"))(t) // the kernel accepts its connections
	defer silent.Close()
	d := ok(openDatabase(Config{URL: "postgres://decamp@" + silent.Addr().String() + "/decamp?sslmode=disable&connect_timeout=3600"}))(t)
	defer d.close()
	d.patience = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	err := d.toFault(ctx, "open", d.prepareSchema(ctx))
	if !fault.Is(err, fault.Unreachable) || fault.HintOf(err) != postgresAway {
		t.Errorf("got %v (hint %q), want Unreachable with the hint %q", err, fault.HintOf(err), postgresAway)
	}
	if ctx.Err() != nil {
		t.Errorf("the server was not reported within %v", waitTimeout)
	}
}

// An upgrade whose last statement fails changes nothing.
func TestAnUpgradeFails(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		r := p.open()
		ok(r.Plans.Add(t.Context(), Plan{Name: "p"}))(t)
		before := p.dump(r)
		bad := nextChange(true)
		bad.statements = append(bad.statements, `INSERT INTO absent VALUES (1)`)
		if err := p.prepareWith(bad); err == nil {
			t.Error("the upgrade did not fail")
		}
		if after := p.dump(r); before != after {
			t.Errorf("the upgrade changed the database: before %s, after %s", before, after)
		}
	})
}

// nextChange returns an example of a next version, which adds a column and a table, and fills them.
func nextChange(compatible bool) schemaChange {
	return schemaChange{compatible: compatible, statements: []string{
		`ALTER TABLE plans ADD COLUMN colour TEXT NOT NULL DEFAULT ''`,
		`UPDATE plans SET colour = 'red'`,
		`CREATE TABLE colours (name TEXT PRIMARY KEY)`,
		`INSERT INTO colours VALUES ('red')`,
	}}
}

// prepareWith prepares the schema like a version with one more change.
func (p *testDatabase) prepareWith(next schemaChange) error {
	d := ok(openDatabase(Config{URL: p.url}))(p.t)
	defer d.close()
	d.changes = append(slices.Clone(schemaChanges), next)
	return d.prepareSchema(p.t.Context())
}

// upgradeWith upgrades the schema by one more change, and checks the result.
func (p *testDatabase) upgradeWith(next schemaChange) {
	p.t.Helper()
	must(p.t, p.prepareWith(next))
	d := ok(openDatabase(Config{URL: p.url}))(p.t)
	defer d.close()
	var colour string
	must(p.t, d.durable.QueryRow(`SELECT p.colour FROM plans AS p JOIN colours AS c ON c.name = p.colour WHERE p.name = 'p'`).Scan(&colour))
	if colour != "red" {
		p.t.Errorf("the change wrote %q", colour)
	}
}

// schemaVersions returns the version of the database, and the oldest compatible one.
func (p *testDatabase) schemaVersions(r *Database) string {
	p.t.Helper()
	var version, oldest int
	must(p.t, r.db.durable.QueryRow(`SELECT version, oldest FROM meta`).Scan(&version, &oldest))
	return fmt.Sprint(version, oldest)
}

// dump returns all rows of the tables that a test changes, and the names of all tables.
func (p *testDatabase) dump(r *Database) string {
	p.t.Helper()
	names := `SELECT name FROM sqlite_master ORDER BY name`
	if strings.HasPrefix(p.url, "postgres") {
		names = `SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('decamp') ORDER BY relname`
	}
	var b strings.Builder
	for _, query := range []string{names, `SELECT * FROM meta`, `SELECT * FROM plans`} {
		rows := ok(r.db.durable.Query(query))(p.t)
		columns := ok(rows.Columns())(p.t)
		fmt.Fprintln(&b, columns)
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			must(p.t, rows.Scan(values...))
			for _, v := range values {
				fmt.Fprintf(&b, "%v ", *v.(*any))
			}
		}
		must(p.t, errors.Join(rows.Err(), rows.Close()))
	}
	return b.String()
}

func TestDatabaseOfOtherProgramIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		if strings.HasPrefix(p.url, "postgres") {
			p.execute("CREATE SCHEMA decamp;\nCREATE TABLE decamp.people (name TEXT)")
		} else {
			p.execute("CREATE TABLE people (name TEXT)")
		}
		if _, err := Open(t.Context(), Config{URL: p.url}); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("Open: got %v, want Invalid with a hint", err)
		}
	})
}
