package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/terminal"
	"github.com/decamp/decamp/test/pty"
)

// The commands use a stored password until the user removes it, and never print it.
func TestAStoredPasswordIsUsed(t *testing.T) {
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01")}})
	secret := c.vars[assemble.PasswordEnv]
	delete(c.vars, assemble.PasswordEnv)
	c.vars["XDG_CONFIG_HOME"] = t.TempDir()
	c.writeSettings("sources:\n  lab: {url: '" + c.url() + "', fingerprint: '" + c.lab.Fingerprint() + "'}\n")
	run := func(want int, words ...string) {
		t.Helper()
		if code := c.testProgram.run(t.Context(), append(words, "--state", c.assembler.State)); code != want {
			t.Errorf("%q: exit code %d, want %d: %s", words, code, want, c.stderr())
		}
	}
	run(2, "ls", "lab") // no password
	run(2, "login", "lab", "--store", "somewhere")
	run(2, "login", "nobody", "--store", "file")
	run(5, "login", "lab", "--store", "keyring", "--secret-file", secret) // no bus
	mustContain(t, c.stderr(), "no password for root@", "want keyring or file", `no source or server "nobody"`, "decamp login --state "+c.assembler.State+" NAME --store file")
	run(0, "login", "lab", "--store", "file", "--secret-file", secret)
	run(0, "ls", "lab")
	mustContain(t, c.testProgram.out.String(), "web01")

	stored := filepath.Join(c.vars["XDG_CONFIG_HOME"], "decamp", "credentials.json")
	must(t, os.Chmod(stored, 0o644))
	run(4, "ls", "lab")
	mustContain(t, c.stderr(), "chmod 600 "+stored)
	must(t, os.Chmod(stored, 0o600))
	run(0, "logout", "lab")
	run(3, "logout", "lab")
	run(2, "ls", "lab")
	if strings.Contains(c.stderr()+c.testProgram.out.String(), c.lab.Password()) {
		t.Error("the password is in the output")
	}
}

func TestAStoredTokenIsUsed(t *testing.T) {
	s := newServerProgram(t)
	s.vars["XDG_CONFIG_HOME"] = t.TempDir()
	if code, text := s.runLine("decamp server add prod " + s.fleet.URL + " --fingerprint " + s.fleet.Fingerprint); code != 0 {
		t.Fatal(text)
	}
	if code, _ := s.runLine("decamp status --server prod"); code != 4 {
		t.Errorf("exit code %d without a token", code)
	}
	user := pty.New(t)
	s.terminal = func() (*terminal.Terminal, error) { return terminal.New(user.Open()), nil }
	done := make(chan int, 1)
	go func() {
		code, _ := s.runLine("decamp login prod --store file")
		done <- code
	}()
	user.Sees("Token for " + s.fleet.URL + ": ")
	user.Types(s.fleet.Tokens[server.View] + "\n")
	if code := <-done; code != 0 || strings.Contains(user.Seen(), s.fleet.Tokens[server.View]) {
		t.Fatalf("exit code %d: %s%s", code, s.stderr(), user.Seen())
	}
	if code, text := s.runLine("decamp status --server " + s.fleet.URL + " --server-fingerprint " + s.fleet.Fingerprint); code != 0 {
		t.Error(text)
	}
}
