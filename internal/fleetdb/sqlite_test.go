package fleetdb

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

func fileOf(p *testDatabase) string { return strings.TrimPrefix(p.url, "sqlite:") }

func TestOnlyTheOwnerCanReadTheFile(t *testing.T) {
	p := newSQLite(t)
	p.open()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if mode := ok(os.Stat(fileOf(p) + suffix))(t).Mode(); mode != 0o600 {
			t.Errorf("mode of fleet.db%s is %v, want 0600", suffix, mode)
		}
	}
}

func TestFullDiskLeavesDatabaseConsistent(t *testing.T) {
	ctx := t.Context()
	r := newSQLite(t).open()
	ok(r.Plans.Add(ctx, Plan{Name: "p"}))(t)
	var pages int
	must(t, r.db.durable.QueryRow(`PRAGMA page_count`).Scan(&pages))
	ok(r.db.durable.Exec(fmt.Sprintf(`PRAGMA max_page_count = %d`, pages+10)))(t)
	if err := r.VMs.Add(ctx, someVMs("p", 1000)); !fault.Is(err, fault.Full) || fault.HintOf(err) == "" {
		t.Errorf("on a full disk: got %v, want Full with a hint", err)
	}
	if n := len(ok(r.VMs.List(ctx, Query{}))(t)); n != 0 {
		t.Errorf("%d VMs were added, want 0", n)
	}
	ok(r.db.durable.Exec(`PRAGMA max_page_count = 1000000`))(t)
	must(t, r.VMs.Add(ctx, someVMs("p", 1000)))
}

func TestACorruptedFileIsRefused(t *testing.T) {
	const page = 4096
	for name, damage := range map[string]struct {
		apply func([]byte) []byte
		kind  fault.Kind
	}{
		"not a SQLite file":    {func(b []byte) []byte { return []byte("once upon a time there was a fleet of hosts") }, fault.Invalid},
		"random page":          {func(b []byte) []byte { return overwrite(b, page, len(b)) }, fault.Corrupt},
		"half of the file":     {func(b []byte) []byte { return b[:len(b)/2/page*page] }, fault.Corrupt},
		"incomplete last page": {func(b []byte) []byte { return b[:len(b)-page+300] }, fault.Corrupt},
		"overwritten header":   {func(b []byte) []byte { return overwrite(b, 0, 100) }, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			p := newSQLite(t)
			full := p.createFile()
			damaged := damage.apply(full)
			must(t, os.WriteFile(fileOf(p), damaged, 0o600))
			err := readAll(t, p)
			if now := ok(os.ReadFile(fileOf(p)))(t); !bytes.Equal(now, damaged) {
				t.Errorf("the refused file was changed: %d bytes, then %d", len(damaged), len(now))
			}
			if !fault.Is(err, damage.kind) || fault.HintOf(err) == "" {
				t.Errorf("got %v of kind %s, want %s with a hint (%q)", err, fault.KindOf(err), damage.kind, fault.HintOf(err))
			}
		})
	}
}

func overwrite(b []byte, from, to int) []byte {
	for i := from; i < to; i++ {
		b[i] = byte(i*7 + 13)
	}
	return b
}

// createFile creates a database with VMs, closes it, and returns its bytes.
func (p *testDatabase) createFile() []byte {
	p.t.Helper()
	r := ok(Open(p.t.Context(), Config{URL: p.url}))(p.t)
	ok(r.Plans.Add(p.t.Context(), Plan{Name: "p"}))(p.t)
	must(p.t, r.VMs.Add(p.t.Context(), someVMs("p", 500)))
	must(p.t, r.Close())
	return ok(os.ReadFile(fileOf(p)))(p.t)
}

// readAll opens the database and reads all rows.
func readAll(t *testing.T, p *testDatabase) error {
	r, err := Open(t.Context(), Config{URL: p.url})
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.Feed.Changes(t.Context(), 0)
	return err
}

func TestCorruptRowIsReported(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		f := newFleet(t, p.open(), 2)
		ok(f.db.durable.Exec(`UPDATE vms SET listing = '{"disks": "many"}' WHERE vm = 'vm-2'`))(t)
		_, err := f.VMs.Get(t.Context(), key(2))
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "p/vm-2") {
			t.Errorf("Get of a corrupt row: got %v, want Corrupt with the name of the VM", err)
		}
		f.getVM(1)
	})
}
