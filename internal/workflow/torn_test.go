package workflow

import (
	"os"
	"path/filepath"
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
