package assemble

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

func TestRefusedPasswordsCountForFifteenMinutes(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "it's refused")
	r := &refusals{path, "root@esx1:443", func() time.Time { return now }}
	other := &refusals{path, "root@esx2:443", r.now}
	refused := errors.New("wrong password")
	note := func(err error) {
		t.Helper()
		if err := r.note(err); err != nil {
			t.Fatal(err)
		}
	}
	for range mostRefusals {
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
		note(refused)
		now = now.Add(time.Minute)
	}
	err := r.check()
	if !fault.Is(err, fault.Denied) {
		t.Fatalf("one more try: %v", err)
	}
	mustContain(t, fault.HintOf(err), "wait 12m0s", "rm "+fault.Quote(path))
	if err := other.check(); err != nil {
		t.Errorf("another host: %v", err)
	}
	now = now.Add(12 * time.Minute)
	if err := r.check(); err != nil {
		t.Errorf("15 minutes after the first: %v", err)
	}
	note(refused)
	note(nil)
	for range mostRefusals - 1 {
		note(refused)
	}
	if err := r.check(); err != nil {
		t.Errorf("a login that worked did not clear the count: %v", err)
	}
}

func TestDamagedRefusalsHaveARemedy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "refused")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := (&refusals{path, "root@esx1:443", time.Now}).check()
	if !fault.Is(err, fault.Corrupt) || fault.HintOf(err) != "run: rm "+path {
		t.Errorf("%v, remedy %q", err, fault.HintOf(err))
	}
}
