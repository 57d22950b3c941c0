package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/assemble/complete"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/executable"
	"github.com/decamp/decamp/internal/lab/pve"
)

// completedWords returns the words of a completion. It fails the test if the completion prints to standard error.
func (r *testProgram) completedWords(args ...string) string {
	r.t.Helper()
	r.out.Reset()
	before := len(r.stderr())
	r.run(r.t.Context(), append([]string{"__complete"}, append(args[:1:1], append([]string{"--state", r.state}, args[1:]...)...)...))
	words, ok := strings.CutSuffix(r.out.String(), ":4\n") // without file names
	if !ok {
		words, ok = strings.CutSuffix(words, ":6\n") // and without a space after a word
	}
	stderr := strings.ReplaceAll(r.stderr()[before:], "ShellCompDirectiveNoSpace, ", "")
	if stderr = strings.ReplaceAll(stderr, "Completion ended with directive: ShellCompDirectiveNoFileComp\n", ""); !ok || stderr != "" {
		r.t.Errorf("%q: %q, standard error %q", args, r.out, stderr)
	}
	return strings.Join(strings.Fields(words), " ")
}

func TestCompletionOfSourcesAndVMs(t *testing.T) {
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01"), smallVM("web02"), smallVM("$(touch /tmp/x)")}})
	file := c.vars["DECAMP_PASSWORD_FILE"]
	c.words = func() *complete.Cache { // without a time limit, because a busy machine is slow
		return &complete.Cache{Dir: c.cache, Now: time.Now, After: func(time.Duration) <-chan time.Time { return nil }}
	}
	if got := c.completedWords("migrate", c.url(), ""); got != "" {
		t.Errorf("a host with an unknown certificate: %q", got)
	}
	c.cache, c.assembler.State = t.TempDir(), c.state
	if code := c.runArgs("doctor", c.url(), "--short"); code == 4 { // stores the certificate
		t.Fatal(c.stderr())
	}
	c.vars["DECAMP_PASSWORD_FILE"] = ""
	if got := c.completedWords("ls", c.url(), ""); got != "" {
		t.Errorf("without a password: %q", got)
	}
	c.cache = t.TempDir()
	for _, arg := range []struct {
		want string
		args []string
	}{
		{c.url(), []string{"ls", ""}},
		{"", []string{"ls", "vcenter"}},
		{"vm-12 web01 web02", []string{"migrate", "--password-file", file, c.url(), ""}},
		{"web02", []string{"ls", c.url(), "web02"}}, // from the cache
		{"vm-12 web01 web02", []string{"doctor", c.url(), "web01", ""}},
		{"datastore:datastore1/vms datastore:datastore1@" + c.lab.Addr() + "/vms", []string{"limits", "data"}},
		{"", []string{"watch", ""}}, // without a database; the completion creates none
	} {
		got := c.completedWords(arg.args...)
		if arg.want = strings.Replace(arg.want, "vm-12", refIn(got), 1); got != arg.want {
			t.Errorf("%q: %q, want %q", arg.args, got, arg.want)
		}
	}
}

func TestCompletionOfTargets(t *testing.T) {
	r := newTestProgram(t)
	r.words = func() *complete.Cache {
		return &complete.Cache{Dir: r.cache, Now: time.Now, After: func(time.Duration) <-chan time.Time { return nil }}
	}
	r.writeSettings("targets:\n  rack: dir:/srv/rack\n")
	_, to := proxmoxNode(t, pve.Config{})
	for _, command := range []string{"migrate esxi://root@esx1 web01", "doctor", "plan init esxi://root@esx1", "init"} {
		args := append(strings.Fields(command), "--to")
		if got := r.completedWords(append(args, "r")...); got != "rack" {
			t.Errorf("%s: got completions %q, want rack", command, got)
		}
		if got, want := r.completedWords(append(args, to+"&storage=lo")...), to+"&storage=local "+to+"&storage=local-lvm"; got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// Bash completes targets, although readline breaks words at : and =, and users quote ? and &.
func TestBashCompletesTargets(t *testing.T) {
	r := newTestProgram(t)
	if code := r.run(t.Context(), []string{"completion", "bash"}); code != 0 {
		t.Fatal(r.stderr())
	}
	script := r.out.String() + `
compopt() { :; }
_init_completion() { cur=$typed; words=(decamp doctor --to "$typed"); cword=3; }
decamp() { [[ $4 == "$asked" ]] && printf '%s\n' "${found[@]}" :6; }
typed=$1 asked=$2; shift 2; found=("$@") COMP_WORDBREAKS=$' \t\n"\'><=;|&(:' COMP_TYPE=9
__start_decamp
printf '%s ' "${COMPREPLY[@]}"
`
	const a, node = "proxmox:https://", "proxmox:https://pve1:8006/pve1"
	for _, tt := range []struct{ typed, asked, found, want string }{
		{"pro", "pro", a, a},
		{node + `\?st`, node + "?st", node + "?storage=", `8006/pve1\?storage=`},
		{node + `\?storage=l`, node + "?storage=l", node + "?storage=local", "local"},
		{node + `\?storage=l`, node + "?storage=l", node + "?storage=local " + node + "?storage=lvm", "local lvm"},
		{node + `\?cpu=a\&storage=l`, node + "?cpu=a&storage=l", node + "?cpu=a&storage=local", "local"},
		{"'" + node + "?cpu=a&st", node + "?cpu=a&st", node + "?cpu=a&storage=", node + "?cpu=a&storage= " + node + "?cpu=a&storage=..."},
		{`"` + node + "?cpu=a&storage=l", node + "?cpu=a&storage=l", node + "?cpu=a&storage=local", node + "?cpu=a&storage=local"},
	} {
		args := append([]string{"-c", script, "bash", tt.typed, tt.asked}, strings.Fields(tt.found)...)
		out, err := exec.CommandContext(t.Context(), "bash", args...).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.typed, got, err, tt.want)
		}
	}
}

// fish and zsh load the scripts, call decamp with the typed words, and show the words that decamp returns.
func TestFishAndZshComplete(t *testing.T) {
	for shell, session := range map[string]string{
		"fish": `source completion; complete -C "decamp status wave"`,
		"zsh": `zmodload zsh/zpty
zpty user env TERM=dumb zsh -f -i
zpty -w user 'fpath=($PWD $fpath); autoload -Uz compinit && compinit -u -D; bindkey "^I" complete-word; print started'
zpty -r -m user seen '*started*started*'
zpty -w -n user $'decamp status wave\t\t'
zpty -r -m user seen '*wave-1*' && print -r -- "$seen"`,
	} {
		t.Run(shell, func(t *testing.T) {
			r, dir := newTestProgram(t), t.TempDir()
			if code := r.run(t.Context(), []string{"completion", shell}); code != 0 {
				t.Fatal(r.stderr())
			}
			script := map[string]string{"fish": "completion", "zsh": "_decamp"}[shell]
			must(t, os.WriteFile(filepath.Join(dir, script), r.out.Bytes(), 0o600))
			executable.Write(t, filepath.Join(dir, "decamp"), "#!/bin/sh\necho \"$*\" >>asked\nprintf 'wave-1\\nwave-2\\n:4\\n'\n")
			args := map[string][]string{"fish": {"--no-config", "-c", session}, "zsh": {"-f", "-c", session}}[shell]
			cmd := exec.CommandContext(t.Context(), shell, args...)
			cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + dir + ":/usr/bin:/bin"}
			var out []byte
			var err error
			runInTime(t, shell, func() { out, err = cmd.CombinedOutput() })
			asked, _ := os.ReadFile(filepath.Join(dir, "asked")) // empty if decamp was not called
			if err != nil || !strings.Contains(string(out), "wave-1") || !strings.HasPrefix(string(asked), "__complete status wave\n") {
				t.Errorf("%v, decamp was called with %q:\n%s", err, asked, out)
			}
		})
	}
}

// refIn returns the VM reference at the start of words. It is the completion of a name that a shell would execute.
func refIn(words string) string {
	first, _, _ := strings.Cut(words, " ")
	if strings.HasPrefix(first, "vm-") {
		return first
	}
	return "a reference"
}

func TestCompletionOfPlansAndVMs(t *testing.T) {
	r := newTestProgram(t)
	url, err := fileDatabase(r.state)
	must(t, err)
	db, err := fleetdb.Open(t.Context(), fleetdb.Config{URL: url})
	must(t, err)
	defer db.Close()
	for _, name := range []string{"wave-1", "wave-2"} {
		_, err := db.Plans.Add(t.Context(), fleetdb.Plan{Name: name, Text: "version: 1\n"})
		must(t, err)
	}
	must(t, db.VMs.Add(t.Context(), []fleetdb.VM{{Key: fleetdb.Key{Plan: "wave-1", VM: "vm-7"}, Name: "web01"}, {Key: fleetdb.Key{Plan: "wave-1", VM: "vm-8"}, Name: "R&D"}}))
	r.words = func() *complete.Cache {
		return &complete.Cache{Now: time.Now, After: func(time.Duration) <-chan time.Time { return nil }}
	}
	for typed, want := range map[string]string{"": "wave-1 wave-2", "wave-1/": "wave-1/vm-8 wave-1/web01", "x": ""} {
		for _, command := range []string{"status", "pause", "cancel", "rollback"} {
			if got := r.completedWords(command, typed); got != want {
				t.Errorf("%s %s: %q, want %q", command, typed, got, want)
			}
		}
	}
	if got := r.completedWords("watch", "wave-1/"); got != "" {
		t.Errorf("watch accepts only plans, got %q", got)
	}
}

// A completion waits for a host that does not respond no longer than its time limit.
func TestCompletionDoesNotWaitForASilentHost(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	r := newTestProgram(t)
	r.vars["DECAMP_PASSWORD_FILE"] = "/dev/null"
	passed := make(chan time.Time, 1)
	passed <- time.Now()
	r.words = func() *complete.Cache {
		return &complete.Cache{Dir: r.cache, Now: time.Now, After: func(time.Duration) <-chan time.Time { return passed }}
	}
	runInTime(t, "the completion", func() {
		if got := r.completedWords("migrate", "esxi://root@"+silent.Addr().String(), ""); got != "" {
			t.Errorf("got completions %q", got)
		}
	})
}

// runInTime calls f, and fails the test if f does not return in time.
func runInTime(t *testing.T, name string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s did not return", name)
	}
}
