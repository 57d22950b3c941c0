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

// damagedOpens opens a state directory with nothing but this state file. It opens, or says what to do.
func damagedOpens(t *testing.T, what string, file []byte) error {
	t.Helper()
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, localName), file, 0o600))
	e, err := Open(t.Context(), Config{Dir: dir})
	if err == nil {
		ok(t, e.Close())
	} else if fault.KindOf(err) != fault.Corrupt || fault.HintOf(err) == "" {
		t.Errorf("%s: %v, of kind %v, with remedy %q", what, err, fault.KindOf(err), fault.HintOf(err))
	}
	return err
}

// A state file that was cut, or a page of which is garbage, is said to be damaged with what to do,
// wherever that is found: SQLite's own question, or the engine as it starts.
func TestDamagedStateIsSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := open(t, dir, pair(addOne, addOne))
	ok(t, e.Start(t.Context(), "r1", "pair", 40))
	ok(t, e.Wait(t.Context(), "r1"))
	crashed, err := os.ReadFile(filepath.Join(dir, localName)) // what a crash leaves without the log
	ok(t, err)
	ok(t, e.Close())
	closed, err := os.ReadFile(filepath.Join(dir, localName))
	ok(t, err)
	if len(crashed) != page || len(closed) < 8*page {
		t.Fatalf("%d and %d bytes: this is about other files", len(crashed), len(closed))
	}
	refused := 0
	for size := 96; size < 112; size++ { // behind SQLite's header, which is 100 bytes
		if damagedOpens(t, "cut", crashed[:size]) != nil {
			refused++
		}
	}
	for at := 0; at < len(closed); at += 3 * page {
		file := append([]byte{}, closed...)
		for i := range page {
			file[at+i] = byte(i*7 + 1)
		}
		if damagedOpens(t, "garbage", file) != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no damage was noticed: there is nothing to test")
	}
	if err := damagedOpens(t, "whole", closed); err != nil {
		t.Error(err)
	}
}

// A state file of a later format is refused with both formats, and stays as it is. A state file without a format,
// from before the first release, gets it.
func TestLaterFormatIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, localName)
	setFormat := func(format int) {
		db, err := openSQLite(file)
		ok(t, err)
		_, err = db.Exec(fmt.Sprintf(`PRAGMA user_version = %d`, format))
		ok(t, errors.Join(err, db.Close()))
	}
	e := open(t, dir, pair(addOne, addOne))
	ok(t, e.Start(t.Context(), "r1", "pair", 40))
	ok(t, e.Wait(t.Context(), "r1"))
	ok(t, e.Close())
	setFormat(stateFormat + 1)
	before, err := os.ReadFile(file)
	ok(t, err)
	_, err = Open(t.Context(), Config{Dir: dir})
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), fmt.Sprintf("format %d, and this decamp supports format %d", stateFormat+1, stateFormat)) ||
		!strings.Contains(fault.HintOf(err), "install the version of decamp") {
		t.Errorf("opened: %v (%s)", err, fault.HintOf(err))
	}
	after, err := os.ReadFile(file)
	ok(t, err)
	if !bytes.Equal(before, after) {
		t.Error("the state file was changed")
	}
	setFormat(0)
	e = open(t, dir, pair(addOne, addOne))
	if n := result(t, e, "r1"); n != 42 {
		t.Errorf("result %d", n)
	}
	if err := checkFormat(t.Context(), e.record.db); err != nil {
		t.Error(err)
	}
	var format int
	ok(t, e.record.db.QueryRow(`PRAGMA user_version`).Scan(&format))
	if format != stateFormat {
		t.Errorf("format %d", format)
	}
}
