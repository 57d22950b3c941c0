package fleetdb

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
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

// The tables of each version that was released are what they were: the changes that made them
// are never edited.
func TestReleasedTablesStayAsTheyAre(t *testing.T) {
	var b bytes.Buffer
	for _, s := range append(meta, schemaChanges[0]...) {
		b.WriteString(s + ";\n")
	}
	golden := filepath.Join("testdata", "v1-tables.sql")
	if *update {
		must(t, os.WriteFile(golden, b.Bytes(), 0o644))
	}
	if want := ok(os.ReadFile(golden))(t); !bytes.Equal(b.Bytes(), want) {
		t.Errorf("version 1 has changed; add a version instead")
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

func TestADatabaseOfANewerVersionIsLeftAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		r := p.open()
		ok(r.db.durable.Exec(`UPDATE meta SET version = 99`))(t)
		if _, err := Open(t.Context(), Config{URL: p.url}); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
			t.Errorf("opened: %v", err)
		}
	})
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
