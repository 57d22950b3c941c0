package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/assemble/complete"
	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
	"github.com/decamp/decamp/internal/terminal"
	"github.com/decamp/decamp/test/pty"
)

// serverProgram is a program with a server and a file with an admin token.
type serverProgram struct {
	*testProgram
	fleet *servertest.Fleet
	token string
}

func newServerProgram(t *testing.T) *serverProgram {
	t.Helper()
	s := &serverProgram{newTestProgram(t), servertest.Start(t, nil), filepath.Join(t.TempDir(), "token")}
	must(t, os.WriteFile(s.token, []byte(s.fleet.Tokens[server.Admin]+"\n"), 0o600))
	return s
}

// runLine runs a command line with the state directory of the program. It returns the exit code and the output.
func (s *serverProgram) runLine(line string) (code int, text string) {
	s.t.Helper()
	s.testProgram.out.Reset()
	must(s.t, s.screen.Truncate(0))
	words := shellWords(line)
	s.argv = words
	code = s.testProgram.run(s.t.Context(), words[1:])
	return code, s.testProgram.out.String() + s.stderr()
}

// decamp server add stores a server after a confirmation. Commands then need only its name, or nothing if it is the
// default.
func TestServersAreRemembered(t *testing.T) {
	s := newServerProgram(t)
	add := "decamp server add prod " + s.fleet.URL + " --token-file " + s.token
	code, text := s.runLine(add)
	if code != 4 {
		t.Fatalf("exit code %d without a confirmation: %s", code, text)
	}
	_, remedy, _ := strings.Cut(text, "run: ")
	if code, text := s.runLine(strings.TrimSpace(remedy)); code != 0 {
		t.Fatalf("exit code %d of %s: %s", code, remedy, text)
	}
	if code, text := s.runLine(add); code != 6 || !strings.Contains(text, "decamp server remove prod") {
		t.Errorf("exit code %d for a second server with the name, want 6: %s", code, text)
	}
	for _, line := range []string{"decamp status --server prod", "decamp server default prod", "decamp status", "decamp limits"} {
		if code, text := s.runLine(line); code != 0 {
			t.Errorf("%s: exit code %d: %s", line, code, text)
		}
	}
	if code, text := s.runLine("decamp server list --json"); code != 0 || !strings.Contains(text, `{"servers":[{"name":"prod","url":"`+s.fleet.URL+`","fingerprint":"`+s.fleet.Fingerprint+`","default":true}]}`) {
		t.Errorf("exit code %d: %s", code, text)
	}
	if code, text := s.runLine("decamp server remove prod"); code != 0 {
		t.Error(text)
	}
	if code, _ := s.runLine("decamp status --server prod"); code != 2 {
		t.Errorf("exit code %d for a removed server, want 2", code)
	}
	for _, line := range []string{"decamp server remove prod", "decamp server default prod"} {
		if code, _ := s.runLine(line); code != 3 {
			t.Errorf("%s: exit code %d", line, code)
		}
	}
}

// The prompt shows the fingerprint. Any answer but yes stores nothing.
func TestAServerIsConfirmedAtTheTerminal(t *testing.T) {
	for answer, want := range map[string]int{"yes": 0, "no": 4} {
		s := newServerProgram(t)
		user := pty.New(t)
		s.terminal = func() (*terminal.Terminal, error) { return terminal.New(user.Open()), nil }
		done := make(chan int, 1)
		go func() {
			code, _ := s.runLine("decamp server add prod " + s.fleet.URL)
			done <- code
		}()
		user.Sees("Type yes to continue: ")
		mustContain(t, user.Seen(), s.fleet.Fingerprint, "no CA of this machine signed it")
		user.Types(answer + "\n")
		if code := <-done; code != want {
			t.Errorf("%s: exit code %d: %s", answer, code, s.stderr())
		}
		known, err := config.Load(s.config, nil)
		if err != nil || len(known.Servers) != 1-min(1, want) {
			t.Errorf("answer %s: got settings %+v, %v", answer, known, err)
		}
	}
}

func TestAnotherCertificateIsNotConfirmed(t *testing.T) {
	s := newServerProgram(t)
	code, text := s.runLine("decamp server add prod " + s.fleet.URL + " --fingerprint " + strings.Repeat("00:", 31) + "00")
	if code != 4 || !strings.Contains(text, "differs from the given fingerprint") {
		t.Errorf("exit code %d: %s", code, text)
	}
	for line, want := range map[string]int{"decamp server add 'a b' https://h": 2, "decamp server add a ftp://h": 2, "decamp server add a https://127.0.0.1:1": 5} {
		if code, text := s.runLine(line); code != want {
			t.Errorf("%s: exit code %d: %s", line, code, text)
		}
	}
}

// Commands in messages contain the flags by which the user selected the server, so they work as printed.
func TestPrintedCommandsWorkAsPrinted(t *testing.T) {
	s := newServerProgram(t)
	folder := t.TempDir()
	plan := filepath.Join(folder, "plan.yaml")
	must(t, os.WriteFile(plan, []byte(servertest.PlanText("wave")), 0o600))
	flags := " --server " + s.fleet.URL + " --token-file " + s.token + " --server-fingerprint " + s.fleet.Fingerprint
	code, text := s.runLine("decamp plan run " + plan + " --detach" + flags)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, text)
	}
	_, follow, _ := strings.Cut(strings.TrimSpace(text), "Follow it with: ")
	if !strings.HasPrefix(follow, "decamp watch --server") || !strings.HasSuffix(follow, " wave") {
		t.Fatalf("printed %q", follow)
	}
	code, text = s.runLine("decamp plan drop wave" + flags)
	if code != 6 {
		t.Fatalf("exit code %d: %s", code, text)
	}
	_, cancel, _ := strings.Cut(strings.TrimSpace(text), "cancel it first: ")
	if code, text := s.runLine(cancel); code != 0 {
		t.Fatalf("%s: exit code %d: %s", cancel, code, text)
	}
	must(t, s.fleet.Database.Plans.SetState(t.Context(), "wave", fleetdb.PlanEnded, nil))
	if code, text := s.runLine(follow); code != 0 {
		t.Errorf("%s: exit code %d: %s", follow, code, text)
	}
	code, text = s.runLine("decamp status nothing --json" + flags)
	if code != 3 || !strings.Contains(text, "decamp status --server "+s.fleet.URL) {
		t.Errorf("exit code %d: %s", code, text)
	}
	// A stored server needs only its name, and the default server nothing.
	if code, text := s.runLine("decamp server add prod " + s.fleet.URL + " --token-file " + s.token + " --fingerprint " + s.fleet.Fingerprint); code != 0 {
		t.Fatal(text)
	}
	if _, text := s.runLine("decamp status nothing --server prod"); !strings.Contains(text, "decamp status --server prod\n") {
		t.Errorf("got %s", text)
	}
	s.runLine("decamp server default prod")
	if _, text := s.runLine("decamp status nothing"); !strings.Contains(text, ": decamp status\n") {
		t.Errorf("got %s", text)
	}
	state := filepath.Join(t.TempDir(), "a state")
	if _, text := s.runLine("decamp status nothing --state '" + state + "'"); !strings.Contains(text, ": decamp status --state '"+state+"'\n") {
		t.Errorf("got %s", text)
	}
}

// The remedy for an unknown or changed certificate contains --server-fingerprint with its value.
func TestTheRemedyNamesServerFingerprint(t *testing.T) {
	s := newServerProgram(t)
	flags := " --server " + s.fleet.URL + " --token-file " + s.token
	for _, more := range []string{"", " --server-fingerprint " + strings.Repeat("00:", 31) + "00"} {
		code, text := s.runLine("decamp status" + flags + more)
		if code != 4 || !strings.Contains(text, "--server-fingerprint "+s.fleet.Fingerprint) {
			t.Errorf("exit code %d: %s", code, text)
		}
	}
}

// decamp status shows notifications that are not delivered, from the local database and from a server.
func TestStatusShowsUndeliveredNotifications(t *testing.T) {
	s := newServerProgram(t)
	url, err := fileDatabase(s.state)
	must(t, err)
	local, err := fleetdb.Open(t.Context(), fleetdb.Config{URL: url})
	must(t, err)
	defer local.Close()
	for line, db := range map[string]*fleetdb.Database{
		"decamp status": local,
		"decamp status --server " + s.fleet.URL + " --token-file " + s.token + " --server-fingerprint " + s.fleet.Fingerprint: s.fleet.Database,
	} {
		if code, text := s.runLine(line); code != 0 || strings.Contains(text, "not delivered") {
			t.Errorf("%s without notifications: exit code %d: %s", line, code, text)
		}
		l, err := db.Leases.Acquire(t.Context(), "notifier", "a", time.Hour)
		must(t, err)
		n := fleetdb.Notification{Receiver: "ops", ID: "evt_1", Doc: []byte("{}")}
		_, err = db.Notifications.Add(t.Context(), l, 1, []fleetdb.Notification{n})
		must(t, err)
		_, err = db.Notifications.Settle(t.Context(), l, n, "HTTP 503", time.Minute, time.Nanosecond)
		must(t, err)
		if code, text := s.runLine(line); code != 0 || !strings.Contains(text, "Notifications that are not delivered: ops: 1 abandoned (HTTP 503)\n") {
			t.Errorf("%s: exit code %d: %s", line, code, text)
		}
		if _, text := s.runLine(line + " --json"); !strings.Contains(text, `"notifications":[{"receiver":"ops","state":"abandoned","count":1,"failure":"HTTP 503"}]`) {
			t.Errorf("%s --json: %s", line, text)
		}
	}
}

// Completion uses the servers and the sources of the config files.
func TestCompletionUsesTheConfigFiles(t *testing.T) {
	s := newServerProgram(t)
	s.words = func() *complete.Cache {
		return &complete.Cache{Dir: s.cache, Now: time.Now, After: func(time.Duration) <-chan time.Time { return nil }}
	}
	must(t, os.WriteFile(s.config.User, []byte("sources: {lab: {url: 'esxi://root@esx1'}}\nservers: {prod: {url: '"+s.fleet.URL+"', fingerprint: '"+s.fleet.Fingerprint+"', tokenFile: "+s.token+"}}\ndefaults: {server: prod}\n"), 0o600))
	_, err := s.fleet.Database.Plans.Add(t.Context(), fleetdb.Plan{Name: "wave-7", Text: "version: 1\n"})
	must(t, err)
	for want, args := range map[string][]string{"wave-7": {"status", "w"}, "lab": {"ls", "la"}} {
		if got := s.completedWords(args...); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
}
