package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/buildinfo"
)

var update = flag.Bool("update", false, "write the help text to docs/lab.md")

// runToEnd runs the program with a canceled context, so that a lab that starts by mistake ends at once.
func runToEnd(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

// docs/lab.md contains the help text. The flag -update replaces it.
func TestHelpIsInTheDocs(t *testing.T) {
	code, help, _ := runToEnd(t, "--help")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	path := filepath.Join("..", "..", "docs", "lab.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "```help\n", "```\n"
	before, rest, found := strings.Cut(string(page), begin)
	old, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no block that begins with %q", path, begin)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+help+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if old != help {
		t.Errorf("docs/lab.md has another help text (go test ./cmd/decamp-lab -update writes it); got:\n%s\nin the page:\n%s", help, old)
	}
}

func TestPrintedConfigIsReadable(t *testing.T) {
	code, printed, errs := runToEnd(t, "--vcenter", "--conn-rate", "55M", "--latency", "20ms", "--print-config")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	path := filepath.Join(t.TempDir(), "lab.json")
	if err := os.WriteFile(path, []byte(printed), 0o600); err != nil {
		t.Fatal(err)
	}
	code, again, errs := runToEnd(t, "--config", path, "--print-config")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if again != printed {
		t.Errorf("the printed configuration changes when it is read:\n%s", again)
	}
	for _, want := range []string{`"connRate": 55000000`, `"latency": "20ms"`, `"vcenter": true`} {
		if !strings.Contains(printed, want) {
			t.Errorf("%s is missing in:\n%s", want, printed)
		}
	}
}

func TestWrongUsageIsExitCode2(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for args, want := range map[string]string{
		"--bogus":                         "unknown flag: --bogus\nRemedy: run: decamp-lab --help",
		"web01":                           `unexpected argument "web01"`,
		"--conn-rate fast":                "conn-rate",
		"--disk web01":                    "want NAME=FILE",
		"--disk web01=" + missing:         "no such file",
		"--config " + missing:             "no such file",
		"--log-file " + missing + "/file": "open log file",
	} {
		code, out, errs := runToEnd(t, strings.Fields(args)...)
		if code != 2 || out != "" || !strings.HasPrefix(errs, "decamp-lab: ") || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", args, code, out, errs)
		}
	}
}

func TestVersion(t *testing.T) {
	build := buildinfo.Current()
	object := fmt.Sprintf(`{"version":%q,"go":%q,"platform":%q}`+"\n", build.Version, build.Go, build.Platform)
	for args, want := range map[string]string{
		"version": build.Line("decamp-lab"), "--version": build.Line("decamp-lab"), "version --json": object, "--version --json": object,
	} {
		if code, out, errs := runToEnd(t, strings.Fields(args)...); code != 0 || out != want {
			t.Errorf("%s: exit code %d, %q, want %q; %s", args, code, out, want, errs)
		}
	}
}

func TestErrorsAsJSON(t *testing.T) {
	code, out, errs := runToEnd(t, "--disk", "web01", "--bogus", "--json")
	var line struct {
		Error struct{ Kind, Message, Remedy string }
	}
	if err := json.Unmarshal([]byte(out), &line); err != nil {
		t.Fatal(err)
	}
	if e := line.Error; code != 2 || errs != "" || e.Kind != "invalid" || e.Message != "unknown flag: --bogus" || e.Remedy != "run: decamp-lab --help" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
}

// A lab prints its facts when it is ready, and removes its password file when it ends. A second lab at the same address
// fails.
func TestLabRunsUntilInterrupted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	announced, stdout := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"--listen", "127.0.0.1:0", "--json"}, stdout, t.Output())
		stdout.Close()
	}()
	var f facts
	if err := json.NewDecoder(announced).Decode(&f); err != nil {
		t.Fatal(err)
	}
	if len(f.VMs) != 4 || f.VMs[0] != "web01" || f.Fingerprint == "" || f.Control == "" {
		t.Errorf("got facts %+v", f)
	}
	if _, err := os.Stat(f.PasswordFile); err != nil {
		t.Error(err)
	}
	_, addr, _ := strings.Cut(f.URL, "@")
	if code, _, errs := runToEnd(t, "--listen", addr); code != 5 || !strings.Contains(errs, "address already in use") || !strings.Contains(errs, "127.0.0.1:0") {
		t.Errorf("a second lab at the address: exit code %d, %s", code, errs)
	}
	interrupt()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(filepath.Dir(f.PasswordFile)); !os.IsNotExist(err) {
		t.Errorf("%s exists after the end of the lab: %v", filepath.Dir(f.PasswordFile), err)
	}
}
