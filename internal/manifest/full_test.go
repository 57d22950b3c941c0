package manifest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// aloneEnv contains the name of the test that the process was started for.
const aloneEnv = "MANIFEST_TEST_ALONE"

// runsAlone runs the test again in a separate process, because the limits of the test would affect the output of
// package testing. It returns true in that process. In the first process it returns false, and the test is
// complete.
func runsAlone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneEnv) == t.Name() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), aloneEnv+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// limitFileSize limits files to n bytes in this process. Like a full
// disk, it lets a write beyond the limit write only the part that fits. It returns a func that removes the limit.
func limitFileSize(t *testing.T, n uint64) (lift func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
			t.Error(err)
		}
	}
}

func TestFullDiskLeavesTheLogUsable(t *testing.T) {
	if !runsAlone(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(100))
	mustAppend(t, l, testRun(0, 10))
	end := l.end.off
	lift := limitFileSize(t, uint64(end)+50)
	err := l.Append(context.Background(), []Run{testRun(10, 10)})
	_, sealErr := Create(path+"2", Info{Source: string(make([]byte, end+50))})
	lift()
	wantFault(t, err, fault.Full)
	wantFault(t, sealErr, fault.Full)
	if st, _ := os.Stat(path); st.Size() != end || fault.HintOf(err) == "" {
		t.Fatalf("file has %d bytes, want %d; hint %q", st.Size(), end, fault.HintOf(err))
	}
	if l.Has(10) || l.Missing() != 90 {
		t.Fatal("chunks of the failed append count")
	}
	mustAppend(t, l, testRun(20, 1))
	mustClose(t, l)
	if l = mustOpen(t, path); l.Missing() != 89 || l.Dropped() != 0 {
		t.Fatalf("%d missing, %d dropped", l.Missing(), l.Dropped())
	}
}

func TestFullDiskWhileSealing(t *testing.T) {
	if !runsAlone(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(100))
	mustAppend(t, l, testRun(0, 100))
	lift := limitFileSize(t, 1000)
	_, err := l.Seal(context.Background())
	lift()
	wantFault(t, err, fault.Full)
	if _, err := os.Stat(path + ".new"); err == nil {
		t.Fatal("the incomplete file remains")
	}
	mustSeal(t, l)
}
