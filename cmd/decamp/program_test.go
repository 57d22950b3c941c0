package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/assemble/complete"
	"github.com/decamp/decamp/internal/buildinfo"
	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/logging"
	"github.com/decamp/decamp/internal/terminal"
)

var update = flag.Bool("update", false, "write the golden files")

// testProgram is a program with streams in memory and without a terminal.
type testProgram struct {
	*program
	t      *testing.T
	out    *bytes.Buffer
	screen *os.File
	vars   map[string]string
	cache  string // folder of cached completions
	state  string // state directory
}

func newTestProgram(t *testing.T) *testProgram {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	r := &testProgram{t: t, out: &bytes.Buffer{}, screen: f, vars: map[string]string{}, cache: t.TempDir()}
	r.program = newProgram(f, r.out, terminal.NewScreen(f), func(name string) string { return r.vars[name] }, func() (*terminal.Terminal, error) { return nil, errors.New("no terminal") })
	r.words = func() *complete.Cache { return &complete.Cache{Dir: r.cache, Now: time.Now, After: time.After} }
	r.argv, r.state = []string{"decamp"}, t.TempDir()
	r.assembler.State = r.state
	r.config = config.Paths{System: filepath.Join(r.state, "none"), User: filepath.Join(t.TempDir(), "config.yaml")}
	return r
}

// run executes one command.
func (r *testProgram) run(ctx context.Context, args []string) int {
	return runCommand(ctx, r.program, args)
}

// stderr returns the text on standard error.
func (r *testProgram) stderr() string {
	r.t.Helper()
	text, err := os.ReadFile(r.screen.Name())
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// golden compares got with the file at path. With -update, it writes the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test ./cmd/decamp -update writes it); got:\n%s", path, got)
	}
}

func mustContain(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

func TestWrongUsageIsExitCode2WithARemedy(t *testing.T) {
	for _, c := range []struct{ name, args, message, remedy string }{
		{"unknown command", "migrat", `"migrat" is not a command`, "did you mean: decamp migrate"},
		{"unlike any command", "xyzzy", `"xyzzy" is not a command`, "run: decamp --help"},
		{"unknown flag", "ls --bogus", "unknown flag: --bogus", "run: decamp ls --help"},
		{"argument missing", "migrate esxi://root@h", "VM is missing", "run: decamp migrate --help"},
		{"both missing", "migrate", "URL and VM is missing", "run: decamp migrate --help"},
		{"unexpected argument", "verify a b", `unexpected argument "b"`, "run: decamp verify --help"},
		{"no target", "migrate esxi://root@h vm", "--to is missing", "run: decamp migrate --help"},
		{"invalid target", "migrate esxi://root@h vm --to /srv", "is not a destination", "write dir:/FOLDER"},
		{"one target twice", "migrate esxi://root@h vm --to dir:/x --to dir:/x/", "has the same folder", "run: decamp migrate --help"},
		{"invalid landing", "migrate esxi://root@h vm --to dir:/x --landing ram", "want tmpfs:SIZE", "--help"},
		{"landing over https", "migrate esxi://root@h vm --to dir:/x --landing tmpfs:1G --transport https", "requires --transport landing", "--help"},
		{"landing without bounds", "migrate esxi://root@h vm --to dir:/x --landing tmpfs:9000T", "memory are available", "leave memory"},
		{"nfc over https", "migrate esxi://root@h vm --to dir:/x --nfc-buffer 2M", "is for --transport nfc", "--help"},
		{"invalid NFC buffer", "migrate esxi://root@h vm --to dir:/x --transport nfc --nfc-buffer 100K", "multiple of 64K", "--help"},
		{"too much nfc", "migrate esxi://root@h vm --to dir:/x --transport nfc --nfc-buffer 2M --nfc-buffers 9", "at most 16M", "--help"},
		{"too many handles", "migrate esxi://root@h vm --to dir:/x --transport nfc --nfc-handles 17", "want 1 to 16", "--help"},
		{"invalid format", "migrate esxi://root@h vm --to dir:/x --format vhd", "want raw or qcow2", "--help"},
		{"boot time without warm", "migrate esxi://root@h vm --to dir:/x --boot-time 90s", "requires --warm", "--help"},
		{"invalid boot time", "migrate esxi://root@h vm --to dir:/x --warm --boot-time -1s", "want durations above 0", "--help"},
		{"force alone", "migrate esxi://root@h vm --to dir:/x --force", "requires --power-off", "--help"},
		{"too many connections", "migrate esxi://root@h vm --to dir:/x --connections 99", "want 1 to 12", "--help"},
		{"spot without source", "verify /x --spot 1M", "require each other", "--help"},
		{"invalid spot", "verify /x --spot 1M,many", "not a number of random chunks", "--help"},
		{"unknown shell", "completion tcsh", "bash, zsh or fish", "--help"},
		{"password in URL", "ls esxi://root:sesame@h", "contains a password", "--password-file"},
		{"no such scheme", "ls http://h", "neither esxi nor vcenter", "esxi://root@HOST"},
		{"unknown plan command", "plan chek x", `"chek" is not a command`, "decamp plan check"},
		{"no plan", "plan check", "FILE is missing", "run: decamp plan check --help"},
		{"plan with an invalid target", "plan init esxi://root@h --to /srv", "is not a destination", "write dir:/FOLDER"},
		{"invalid plan name", "plan init esxi://root@h --name /x", "want letters, digits", "run: decamp plan init --help"},
		{"serve without trials", "serve --trials 0", "--trials 0: want 1 or more", "run: decamp serve --help"},
		{"worker without trials", "worker --join postgres://d@h/d --offer /x --trials 0", "--trials 0: want 1 or more", "run: decamp worker --help"},
		{"plan without trials", "plan run x --trials 0", "--trials 0: want 1 or more", "run: decamp plan run --help"},
		{"plan without VMs", "plan run x --vms 0", "--vms 0 --trials 1: want 1 or more", "run: decamp plan run --help"},
		{"token that has expired", "token add x --ttl -1h", "--ttl -1h0m0s: want a time above 0", "run: decamp token add --help"},
		{"trial without time", "trial /x --deadline 0", "--deadline 0s: want a time above 0", "run: decamp trial --help"},
		{"rehearsal without time", "rehearse x --deadline 0", "--deadline 0s: want a time above 0", "run: decamp rehearse --help"},
		{"invalid selection", "plan init esxi://root@h --select name==x", "--select: column 5: == is not an operator", "write ="},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTestProgram(t)
			if code := r.run(t.Context(), append(strings.Fields(c.args), "--state", r.assembler.State)); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			mustContain(t, r.stderr(), "decamp: ", c.message, c.remedy)
			if strings.Contains(r.stderr(), "sesame") {
				t.Error("the error contains the password")
			}
			if r.out.Len() > 0 {
				t.Errorf("got standard output %s", r.out)
			}
		})
	}
}

func TestErrorsAsJSON(t *testing.T) {
	r := newTestProgram(t)
	r.run(t.Context(), []string{"ls", "--bogus", "--json"})
	want := `{"error":{"kind":"invalid","message":"decamp ls: unknown flag: --bogus","remedy":"run: decamp ls --help"}}` + "\n"
	if r.out.String() != want {
		t.Errorf("got %swant %s", r.out, want)
	}
	if r.stderr() != "" {
		t.Errorf("got standard error %s", r.stderr())
	}
}

func TestJoinedErrorsStayOnOneLine(t *testing.T) {
	r := newTestProgram(t)
	r.program.out.reportError(errors.Join(errors.New("first \x1b[2J"), errors.New("second")))
	if got := r.stderr(); got != "decamp: first ?[2J; second\n" {
		t.Errorf("got %q", got)
	}
}

func TestStateDirectory(t *testing.T) {
	r := newTestProgram(t)
	r.assembler.State = ""
	r.vars["HOME"] = "/home/ada"
	want := "/home/ada/.local/state/decamp"
	if os.Geteuid() == 0 {
		want = "/var/lib/decamp"
	}
	if got := r.assembler.DefaultState(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestVersion(t *testing.T) {
	build := buildinfo.Current()
	for args, want := range map[string]string{
		"version":        build.Line("decamp"),
		"--version":      build.Line("decamp"),
		"version --json": fmt.Sprintf(`{"version":%q,"go":%q,"platform":%q}`+"\n", build.Version, build.Go, build.Platform),
	} {
		r := newTestProgram(t)
		if code := r.run(t.Context(), strings.Fields(args)); code != 0 || r.out.String() != want {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, r.out, want)
		}
	}
}

func TestLogFileHasDebugMessages(t *testing.T) {
	r := newTestProgram(t)
	r.logFile, r.logFormat = filepath.Join(t.TempDir(), "log"), string(logging.Text)
	stop, err := r.startLog()
	if err != nil {
		t.Fatal(err)
	}
	r.program.out.log.Debug("quiet words")
	r.program.out.log.Warn("loud words")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(r.logFile)
	if err != nil {
		t.Fatal(err)
	}
	mustContain(t, string(text), "quiet words", "loud words")
	if got := r.stderr(); strings.Contains(got, "quiet") || !strings.Contains(got, "loud words") {
		t.Errorf("got standard error %q", got)
	}
}

func TestCommandIsQuotedForAShell(t *testing.T) {
	r := newTestProgram(t)
	r.argv = []string{"decamp", "ls", "esxi://root@h", "it's; rm"}
	want := `decamp ls esxi://root@h 'it'\''s; rm' --fingerprint AA:BB`
	if got := r.assembler.Command("--fingerprint", "AA:BB"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r.argv = []string{"decamp", "ls", "--", "esxi://root@h", "-rf"}
	if got, want := r.assembler.Command("--json"), "decamp ls --json -- esxi://root@h -rf"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestShellArgument(t *testing.T) {
	for word, want := range map[string]string{"web01": "web01", "web 01": "'web 01'", "-rf": "-- -rf", "--json *": "-- '--json *'"} {
		if got := shellArgument(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}

// fullWriter is an output on a full disk.
type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestFailedWriteIsAnError(t *testing.T) {
	for _, args := range []string{"runs", "version", "version --json", "completion zsh", "--help", "migrate --help"} {
		r := newTestProgram(t)
		r.program.out.Writer = fullWriter{}
		if code := r.run(t.Context(), append(strings.Fields(args), "--state", r.assembler.State)); code == 0 {
			t.Errorf("decamp %s: exit code 0, but the output could not be written", args)
		}
	}
}

func TestJSONModeLogsWarnings(t *testing.T) {
	r := newTestProgram(t)
	var log strings.Builder
	r.program.out.json = true
	r.setLog(slog.New(slog.NewTextHandler(&log, nil)))
	r.program.out.warn("mind the gap")
	if r.stderr() != "" || !strings.Contains(log.String(), "mind the gap") {
		t.Errorf("got standard error %q, log %q", r.stderr(), log.String())
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
