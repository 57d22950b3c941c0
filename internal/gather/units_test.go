package gather

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab/executable"
)

// replaceJournalctl makes a shell script the journalctl of this process.
func replaceJournalctl(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	executable.Write(t, filepath.Join(dir, "journalctl"), "#!/bin/sh\n"+script)
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

// Logs of units contain no secrets, and the same pseudonyms as other files.
func TestLogsOfUnits(t *testing.T) {
	replaceJournalctl(t, `[ "$*" != "--quiet --no-pager --no-hostname --output short-iso-precise --lines 20000 --unit decamp-server.service" ] ||
echo '2026-11-28T04:05:06.700000+0000 decamp[7]: VM fails vm="Web DB 01" server=esx9 token=hush-1 password: hush-2'
`)
	a, err := Collect(t.Context(), Options{Units: []string{"decamp-server.service", "decamp-worker.service"}, Secrets: []string{"hush-1"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.files) != 1 || len(a.Left) != 0 {
		t.Errorf("got files %+v, left out %q", a.Entries(), a.Left)
	}
	want := `2026-11-28T04:05:06.700000+0000 decamp[7]: VM fails vm="<vm1>" server=<host1> token=[removed] password: [removed]` + "\n"
	if got := textOf(a, "logs/decamp-server.service.log"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The archive contains the end of a long log. It lists a log that cannot be read as left out.
func TestLogsOfUnitsAreBounded(t *testing.T) {
	replaceJournalctl(t, `case $* in *server*) i=0; while [ $i -lt 1300 ]; do printf '%016384d\n' $i; i=$((i+1)); done ;; *) echo no permission >&2; exit 1 ;; esac`)
	a, err := Collect(t.Context(), Options{Units: []string{"server", "worker"}})
	if err != nil {
		t.Fatal(err)
	}
	got := textOf(a, "logs/server.log")
	if len(got) > maxFile || len(got) < maxFile-16_385 || !strings.HasSuffix(got, "01299\n") || len(got)%16_385 != 0 || a.files[0].Note != endOfFile {
		t.Errorf("got %d bytes with note %q that end with %q", len(got), a.files[0].Note, got[max(0, len(got)-10):])
	}
	if len(a.Left) != 1 || !strings.Contains(a.Left[0], "worker.log: journalctl: exit status 1 no permission") {
		t.Errorf("got files left out %q", a.Left)
	}
}

// The real journalctl accepts the flags. A unit that is not installed has no log.
func TestUninstalledUnitsHaveNoLog(t *testing.T) {
	a, err := Collect(t.Context(), Options{Units: []string{"decamp-not-installed.service"}})
	if err != nil || len(a.files)+len(a.Left) != 0 {
		t.Errorf("got files %+v, left out %q, %v", a.files, a.Left, err)
	}
	t.Setenv("PATH", t.TempDir())
	a, err = Collect(t.Context(), Options{Units: []string{"decamp-server.service"}})
	if err != nil || len(a.files)+len(a.Left) != 0 {
		t.Errorf("without journalctl: got files %+v, left out %q, %v", a.files, a.Left, err)
	}
}
