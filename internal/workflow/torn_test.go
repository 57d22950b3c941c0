package workflow

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// page is the size of a page of the state file.
const page = 4096

// openDamaged opens a state directory that contains only this state file. An error must be Corrupt with a hint.
func openDamaged(t *testing.T, what string, file []byte) error {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, localName), file, 0o600))
	e, err := Open(t.Context(), Config{Dir: dir})
	if err == nil {
		must(t, e.Close())
	} else if fault.KindOf(err) != fault.Corrupt || fault.HintOf(err) == "" {
		t.Errorf("%s: got %v of kind %v with hint %q, want Corrupt with a hint", what, err, fault.KindOf(err), fault.HintOf(err))
	}
	return err
}

// A truncated state file, or one with a page of garbage, is reported as corrupt with a hint, whether SQLite or the
// engine detects the damage.
func TestDamagedStateIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := openEngine(t, dir, registerPair(addOne, addOne))
	must(t, e.Start(t.Context(), "r1", "pair", 40))
	must(t, e.Wait(t.Context(), "r1"))
	crashed, err := os.ReadFile(filepath.Join(dir, localName)) // the state after a crash, without the WAL
	must(t, err)
	must(t, e.Close())
	// A query that the engine ended may release its connection after Close, and the WAL remains until then.
	db, err := openSQLite(filepath.Join(dir, localName))
	must(t, err)
	_, err = db.ExecContext(t.Context(), `PRAGMA wal_checkpoint(TRUNCATE)`)
	must(t, errors.Join(err, db.Close()))
	closed, err := os.ReadFile(filepath.Join(dir, localName))
	must(t, err)
	if len(crashed) != page || len(closed) < 8*page {
		t.Fatalf("the files have %d and %d bytes, want %d and at least %d", len(crashed), len(closed), page, 8*page)
	}
	refused := 0
	for size := 96; size < 112; size++ { // around the end of SQLite's header of 100 bytes
		if openDamaged(t, "truncated file", crashed[:size]) != nil {
			refused++
		}
	}
	for at := 0; at < len(closed); at += 3 * page {
		file := append([]byte{}, closed...)
		for i := range page {
			file[at+i] = byte(i*7 + 1)
		}
		if openDamaged(t, "page of garbage", file) != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no damage was detected")
	}
	if err := openDamaged(t, "intact file", closed); err != nil {
		t.Error(err)
	}
}

// A state file of a later format is refused with an error that names both formats, and is not changed. A state file of
// before the first release has no format, and gets the current one.
func TestLaterFormatIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, localName)
	setFormat := func(format int) {
		db, err := openSQLite(file)
		must(t, err)
		_, err = db.Exec(fmt.Sprintf(`PRAGMA user_version = %d; PRAGMA wal_checkpoint(TRUNCATE)`, format)) // a query may still have a connection
		must(t, errors.Join(err, db.Close()))
	}
	e := openEngine(t, dir, registerPair(addOne, addOne))
	must(t, e.Start(t.Context(), "r1", "pair", 40))
	must(t, e.Wait(t.Context(), "r1"))
	must(t, e.Close())
	setFormat(stateFormat + 1)
	before, err := os.ReadFile(file)
	must(t, err)
	_, err = Open(t.Context(), Config{Dir: dir})
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), fmt.Sprintf("format %d, and this decamp supports format %d", stateFormat+1, stateFormat)) ||
		!strings.Contains(fault.HintOf(err), "install the version of decamp") {
		t.Errorf("Open: got %v (hint %q), want Unsupported with both formats and a hint", err, fault.HintOf(err))
	}
	after, err := os.ReadFile(file)
	must(t, err)
	if !bytes.Equal(before, after) {
		t.Error("the state file was changed")
	}
	setFormat(0)
	e = openEngine(t, dir, registerPair(addOne, addOne))
	if n := lastResult(t, e, "r1"); n != 42 {
		t.Errorf("result %d, want 42", n)
	}
	if err := checkFormat(t.Context(), e.record.db); err != nil {
		t.Error(err)
	}
	var format int
	must(t, e.record.db.QueryRow(`PRAGMA user_version`).Scan(&format))
	if format != stateFormat {
		t.Errorf("format %d, want %d", format, stateFormat)
	}
}
