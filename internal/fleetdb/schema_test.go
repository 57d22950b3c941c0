package fleetdb

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

var update = flag.Bool("update", false, "write testdata anew")

// statements runs text on an empty database as any client would, without Open.
func (p *place) statements(text string) {
	p.t.Helper()
	d := ok(openDatabase(Config{URL: p.url}))(p.t)
	defer d.close()
	for _, s := range strings.Split(text, ";\n") {
		if _, err := d.durable.ExecContext(p.t.Context(), s); err != nil {
			p.t.Fatalf("%s: %v", s, err)
		}
	}
}

// The tables of each released version stay as they are: the changes that created them are never edited. Version 1
// is from before the first release; 0.1.0 has version 4.
func TestReleasedTablesStayAsTheyAre(t *testing.T) {
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

// A fleet's database of version 1, in the middle of a plan, goes on in this version.
func TestADatabaseOfVersion1IsRead(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		before := "PRAGMA application_id = 1684237680;\n"
		if strings.HasPrefix(p.url, "postgres") {
			before = "CREATE SCHEMA decamp;\n"
		}
		tables, rows := ok(os.ReadFile("testdata/v1-tables.sql"))(t), ok(os.ReadFile("testdata/v1-rows.sql"))(t)
		p.statements(before + string(tables) + strings.TrimSuffix(string(rows), ";\n"))
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

// A database that a newer, incompatible version has upgraded is refused, and stays as it is.
func TestADatabaseOfANewerVersionIsLeftAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		r := p.open()
		ok(r.db.durable.Exec(`UPDATE meta SET version = 99, oldest = 98`))(t)
		before := p.dump(r)
		_, err := Open(t.Context(), Config{URL: p.url})
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "schema version 99") ||
			!strings.Contains(err.Error(), fmt.Sprintf("supports version %d", len(schemaChanges))) || !strings.Contains(fault.HintOf(err), "install the version of decamp") {
			t.Errorf("opened: %v (%s)", err, fault.HintOf(err))
		}
		if after := p.dump(r); before != after {
			t.Errorf("it was changed: before %s, after %s", before, after)
		}
	})
}

// A process that has the database open while an incompatible version upgrades it writes nothing from then on.
func TestAnOpenDatabaseIsUpgradedIncompatibly(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		r := p.open()
		ok(r.Plans.Add(t.Context(), Plan{Name: "p"}))(t)
		p.upgrade(nextChange(false))
		before := p.dump(r)
		_, err := r.Plans.Add(t.Context(), Plan{Name: "q"})
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), fmt.Sprintf("schema version %d", len(schemaChanges)+1)) {
			t.Errorf("wrote: %v", err)
		}
		if after := p.dump(r); before != after {
			t.Errorf("it was changed: before %s, after %s", before, after)
		}
		ok(r.Plans.List(t.Context()))(t) // reading is not refused
	})
}

// A compatible version upgrades the database. Processes of the version before continue, and can open it again.
func TestOldAndNewShareADatabase(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		old := p.open()
		ok(old.Plans.Add(t.Context(), Plan{Name: "p"}))(t)
		p.upgrade(nextChange(true))
		must(t, old.VMs.Add(t.Context(), someVMs("p", 2)))
		again := p.open()
		if got := ok(again.Plans.Get(t.Context(), "p"))(t).Counts[Queued]; got != 2 {
			t.Errorf("%d VMs are queued", got)
		}
		ok(old.Plans.Add(t.Context(), Plan{Name: "q"}))(t)
		if got := p.version(old); got != fmt.Sprintf("%d %d", len(schemaChanges)+1, len(schemaChanges)) {
			t.Errorf("version and oldest are %s", got)
		}
	})
}

// A process that upgrades the database is killed before the upgrade is complete: nothing of it is left, and the
// next process upgrades.
func TestAnUpgradeIsKilled(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		r := p.open()
		ok(r.Plans.Add(t.Context(), Plan{Name: "p"}))(t)
		before := p.dump(r)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childURL+"="+p.url, childUpgrades+"=1")
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || !strings.Contains(string(out), childUpgraded) {
			t.Fatalf("the process was not killed amid its upgrade: %v\n%s", err, out)
		}
		if after := p.dump(r); before != after {
			t.Errorf("before %s, after %s", before, after)
		}
		p.upgrade(nextChange(true))
		if got := p.version(r); got != fmt.Sprintf("%d %d", len(schemaChanges)+1, len(schemaChanges)) {
			t.Errorf("version and oldest are %s", got)
		}
	})
}

// An upgrade whose last statement fails leaves nothing.
func TestAnUpgradeFails(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		r := p.open()
		ok(r.Plans.Add(t.Context(), Plan{Name: "p"}))(t)
		before := p.dump(r)
		bad := nextChange(true)
		bad.statements = append(bad.statements, `INSERT INTO absent VALUES (1)`)
		if err := p.prepare(bad); err == nil {
			t.Error("it did not fail")
		}
		if after := p.dump(r); before != after {
			t.Errorf("before %s, after %s", before, after)
		}
	})
}

// nextChange is a made-up next version: it adds a column, and fills it.
func nextChange(compatible bool) schemaChange {
	return schemaChange{compatible: compatible, statements: []string{
		`ALTER TABLE plans ADD COLUMN colour TEXT NOT NULL DEFAULT ''`,
		`UPDATE plans SET colour = 'red'`,
		`CREATE TABLE colours (name TEXT PRIMARY KEY)`,
		`INSERT INTO colours VALUES ('red')`,
	}}
}

// prepare opens the database as a version with one more change does.
func (p *place) prepare(next schemaChange) error {
	d := ok(openDatabase(Config{URL: p.url}))(p.t)
	defer d.close()
	d.patience = patient
	d.changes = append(slices.Clone(schemaChanges), next)
	return d.prepareSchema(p.t.Context())
}

// upgrade is a prepare that succeeds. It checks what the change did.
func (p *place) upgrade(next schemaChange) {
	p.t.Helper()
	must(p.t, p.prepare(next))
	d := ok(openDatabase(Config{URL: p.url}))(p.t)
	defer d.close()
	var colour string
	must(p.t, d.durable.QueryRow(`SELECT p.colour FROM plans AS p JOIN colours AS c ON c.name = p.colour WHERE p.name = 'p'`).Scan(&colour))
	if colour != "red" {
		p.t.Errorf("the change wrote %q", colour)
	}
}

// version is the version of the database, and the oldest compatible one.
func (p *place) version(r *Database) string {
	p.t.Helper()
	var version, oldest int
	must(p.t, r.db.durable.QueryRow(`SELECT version, oldest FROM meta`).Scan(&version, &oldest))
	return fmt.Sprint(version, oldest)
}

// dump is all columns of the tables that a test may change, with the names of all tables.
func (p *place) dump(r *Database) string {
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

func TestADatabaseOfSomethingElseIsLeftAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		if strings.HasPrefix(p.url, "postgres") {
			p.statements("CREATE SCHEMA decamp;\nCREATE TABLE decamp.people (name TEXT)")
		} else {
			p.statements("CREATE TABLE people (name TEXT)")
		}
		if _, err := Open(t.Context(), Config{URL: p.url}); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("opened: %v", err)
		}
	})
}
