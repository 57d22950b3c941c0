package fleetdb

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

func fileOf(p *place) string { return strings.TrimPrefix(p.url, "sqlite:") }

func TestTheFileIsItsOwnersAlone(t *testing.T) {
	p := sqlitePlace(t)
	p.open()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if mode := ok(os.Stat(fileOf(p) + suffix))(t).Mode(); mode != 0o600 {
			t.Errorf("fleet.db%s is %v", suffix, mode)
		}
	}
}

func TestAFullDiskLeavesWholeRowsAndPasses(t *testing.T) {
	ctx := t.Context()
	r := sqlitePlace(t).open()
	ok(r.Plans.Add(ctx, Plan{Name: "p"}))(t)
	var pages int
	must(t, r.db.durable.QueryRow(`PRAGMA page_count`).Scan(&pages))
	ok(r.db.durable.Exec(fmt.Sprintf(`PRAGMA max_page_count = %d`, pages+10)))(t)
	if err := r.VMs.Add(ctx, someVMs("p", 1000)); !fault.Is(err, fault.Full) || fault.HintOf(err) == "" {
		t.Errorf("on a full disk: %v", err)
	}
	if n := len(ok(r.VMs.List(ctx, Query{}))(t)); n != 0 {
		t.Errorf("%d VMs are there", n)
	}
	ok(r.db.durable.Exec(`PRAGMA max_page_count = 1000000`))(t)
	must(t, r.VMs.Add(ctx, someVMs("p", 1000)))
}

func TestACorruptedFileIsRefused(t *testing.T) {
	const page = 4096
	for name, harm := range map[string]struct {
		do   func([]byte) []byte
		kind fault.Kind
	}{
		"no SQLite at all":   {func(b []byte) []byte { return []byte("once upon a time there was a fleet of hosts") }, fault.Invalid},
		"a page is rubbish":  {func(b []byte) []byte { return overwrite(b, page, len(b)) }, fault.Corrupt},
		"half is cut away":   {func(b []byte) []byte { return b[:len(b)/2/page*page] }, fault.Corrupt},
		"a part of a page":   {func(b []byte) []byte { return b[:len(b)-page+300] }, fault.Corrupt},
		"the header is gone": {func(b []byte) []byte { return overwrite(b, 0, 100) }, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			p := sqlitePlace(t)
			full := p.filled()
			harmed := harm.do(full)
			must(t, os.WriteFile(fileOf(p), harmed, 0o600))
			err := readAll(t, p)
			if now := ok(os.ReadFile(fileOf(p)))(t); !bytes.Equal(now, harmed) {
				t.Errorf("the refused file was changed: %d bytes, then %d", len(harmed), len(now))
			}
			if !fault.Is(err, harm.kind) || fault.HintOf(err) == "" {
				t.Errorf("%v is %s, not %s (%s)", err, fault.KindOf(err), harm.kind, fault.HintOf(err))
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

// filled makes a file with VMs, closed in order, and returns its bytes.
func (p *place) filled() []byte {
	p.t.Helper()
	r := ok(Open(p.t.Context(), Config{URL: p.url}))(p.t)
	ok(r.Plans.Add(p.t.Context(), Plan{Name: "p"}))(p.t)
	must(p.t, r.VMs.Add(p.t.Context(), someVMs("p", 500)))
	must(p.t, r.Close())
	return ok(os.ReadFile(fileOf(p)))(p.t)
}

// readAll opens the file and reads what is in it.
func readAll(t *testing.T, p *place) error {
	r, err := Open(t.Context(), Config{URL: p.url})
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.Feed.Changes(t.Context(), 0)
	return err
}

func TestARowThatIsRubbishIsNamed(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		f := newFleet(t, p.open(), 2)
		ok(f.db.durable.Exec(`UPDATE vms SET listing = '{"disks": "many"}' WHERE vm = 'vm-2'`))(t)
		_, err := f.VMs.Get(t.Context(), key(2))
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "p/vm-2") {
			t.Errorf("read %v", err)
		}
		f.vm(1)
	})
}
