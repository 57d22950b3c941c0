package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/terminal"
	"github.com/decamp/decamp/test/pty"
)

// newInitProgram returns a program with a lab and no password file, and the path of a plan file.
func newInitProgram(t *testing.T) (c *labProgram, plan, passwordFile string) {
	t.Helper()
	c = newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01"), smallVM("db01")}})
	passwordFile = c.vars[assemble.PasswordEnv]
	delete(c.vars, assemble.PasswordEnv)
	return c, filepath.Join(t.TempDir(), "plan.yaml"), passwordFile
}

// wantSetup checks the config file and the plan.
func (c *labProgram) wantSetup(plan string) {
	c.t.Helper()
	s, err := config.Load(c.config, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if s.Sources["127.0.0.1"].URL != c.url() || s.Targets["dir"].To != "dir:"+c.to {
		c.t.Errorf("the config file has %+v", s)
	}
	f, found, err := planfile.Load(plan)
	if err != nil || len(found) > 0 || string(f.Source.URL) != c.url() || len(f.VMs) != 2 {
		c.t.Errorf("the plan: %v, %v, %+v", err, found, f)
	}
}

// The user answers the questions, and corrects a wrong answer. The password is entered once.
func TestInitAtATerminal(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	c, plan, _ := newInitProgram(t)
	user := pty.New(t)
	user.Open() // the terminal stays open between the questions
	c.terminal = func() (*terminal.Terminal, error) { return terminal.New(user.Open()), nil }
	done := make(chan int, 1)
	go func() {
		done <- c.testProgram.run(t.Context(), []string{"init", "--plan", plan, "--state", c.assembler.State})
	}()
	user.Sees("esxi://root@esx1.example.com: ")
	user.Types("esx1\n")
	user.Sees("vsphere.local@HOST\r\nSource, such as esxi://root@esx1.example.com: ")
	mustContain(t, user.Seen(), "neither esxi nor vcenter")
	user.Types(c.url() + "\n")
	user.Sees("dir:/srv/vm: ")
	user.Types("dir:" + c.to + "\n")
	user.Sees("Type yes to continue: ")
	mustContain(t, user.Seen(), c.lab.Fingerprint())
	user.Types("yes\n")
	user.Sees("Password for root@" + c.lab.Addr() + ": ")
	user.Types(c.lab.Password() + "\n")
	if code := <-done; code != 0 {
		t.Fatalf("exit code %d: %s", code, c.stderr())
	}
	mustContain(t, c.stderr(), "checks passed", "Source 127.0.0.1 and target dir are in "+c.config.User, "decamp plan check --state "+c.assembler.State+" "+plan)
	c.wantSetup(plan)

	// a second run does not replace the plan without a confirmation
	before, err := os.ReadFile(plan)
	must(t, err)
	go func() {
		done <- c.testProgram.run(t.Context(), []string{"init", "--source", "127.0.0.1", "--to", "dir", "--plan", plan, "--state", c.assembler.State})
	}()
	user.Sees("Replace it? Type yes to continue: ")
	user.Types("no\n")
	if code := <-done; code != 6 {
		t.Errorf("exit code %d: %s", code, c.stderr())
	}
	if after, err := os.ReadFile(plan); err != nil || string(after) != string(before) {
		t.Error("the plan changed", err)
	}
}

func TestInitWithFlags(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	c, plan, password := newInitProgram(t)
	words := []string{"init", "--source", c.url(), "--to", "dir:" + c.to, "--plan", plan, "--password-file", password, "--json"}
	if code := c.runArgs(words...); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, c.stderr(), c.testProgram.out)
	}
	var got map[string]string
	must(t, json.Unmarshal(c.testProgram.out.Bytes(), &got))
	if got["source"] != "127.0.0.1" || got["target"] != "dir" || got["plan"] != plan || got["config"] != c.config.User {
		t.Errorf("got %v", got)
	}
	c.wantSetup(plan)
	s, err := config.Load(c.config, nil)
	if err != nil || s.Sources["127.0.0.1"].PasswordFile != password || s.Sources["127.0.0.1"].Fingerprint != c.lab.Fingerprint() {
		t.Errorf("got settings %+v, %v", s, err)
	}
	if code := c.testProgram.run(t.Context(), []string{"plan", "check", plan, "--state", c.assembler.State}); code != 0 {
		t.Errorf("exit code %d of a check of the plan: %s", code, c.stderr())
	}
	if code := c.runArgs(words...); code != 6 {
		t.Errorf("exit code %d for an existing plan, want 6", code)
	}
	if code := c.runArgs(append(words, "--replace")...); code != 0 {
		t.Errorf("exit code %d with --replace: %s", code, c.testProgram.out)
	}
	// another source with the same name
	c.writeSettings("sources:\n  127.0.0.1: {url: 'esxi://other@127.0.0.1'}\n")
	must(t, os.Remove(plan))
	c.testProgram.out.Reset()
	if code := c.runArgs(words...); code != 6 || !strings.Contains(c.testProgram.out.String(), "source 127.0.0.1 exists") {
		t.Errorf("exit code %d: %s", code, c.testProgram.out)
	}
	if _, err := os.Stat(plan); err == nil {
		t.Error("the plan exists, but the config file was not written")
	}
}

func TestInitStopsWithoutAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	c, plan, _ := newInitProgram(t)
	if code := c.runArgs("init", "--source", c.url(), "--plan", plan); code != 2 {
		t.Errorf("exit code %d without a target", code)
	}
	mustContain(t, c.stderr(), "--to is missing", "decamp init --state "+c.assembler.State+" --source URL --to TARGET")
	wrong := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(wrong, []byte("wrong\n"), 0o600))
	if code := c.runArgs("init", "--source", c.url(), "--to", "dir:"+c.to, "--plan", plan, "--password-file", wrong); code != 4 {
		t.Errorf("exit code %d for a wrong password, want 4: %s", code, c.stderr())
	}
	for _, path := range []string{plan, c.config.User} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s exists after a refused login", path)
		}
	}
}
