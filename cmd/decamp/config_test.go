package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
)

// writeSettings writes the user's config file.
func (r *testProgram) writeSettings(text string) {
	r.t.Helper()
	must(r.t, os.WriteFile(r.config.User, []byte(text), 0o600))
}

// The names of a source and a target replace a URL and a value of --to. A default applies to commands that
// have the flag.
func TestNamesInTheConfigFileReplaceURLs(t *testing.T) {
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01")}})
	c.vars["DECAMP_PASSWORD_FILE"] = ""
	password := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(password, []byte(c.lab.Password()+"\n"), 0o600))
	c.writeSettings("sources:\n  lab: {url: '" + c.url() + "', fingerprint: '" + c.lab.Fingerprint() + "', passwordFile: " + password + "}\n" +
		"targets: {store: 'dir:/srv/elsewhere'}\ndefaults: {name: wave-7}\n")
	if code := c.testProgram.run(t.Context(), []string{"plan", "init", "lab", "--to", "store", "--state", c.assembler.State}); code != 0 {
		t.Fatalf("exit code %d: %s", code, c.stderr())
	}
	mustContain(t, c.testProgram.out.String(), c.url(), "to: [dir:/srv/elsewhere]", "name: wave-7", "web01")

	c.testProgram.out.Reset()
	for _, words := range []string{"ls labb", "plan init lab --to stor", "status --server prod"} {
		if code := c.testProgram.run(t.Context(), append(strings.Fields(words), "--state", c.assembler.State)); code != 2 {
			t.Errorf("%s: exit code %d", words, code)
		}
	}
	mustContain(t, c.stderr(), `no source "labb"`, "did you mean lab?", `no target "stor"`, "did you mean store?", `no server "prod"`, "decamp server add prod URL")
}

// All commands refuse an invalid config file, except those that help to correct it.
func TestCommandsRefuseAConfigFileWithMistakes(t *testing.T) {
	r := newTestProgram(t)
	r.writeSettings("targets:\n  store: dir:/x\n bad\n")
	if code := r.run(t.Context(), []string{"runs", "--state", r.assembler.State}); code != 2 {
		t.Errorf("exit code %d", code)
	}
	mustContain(t, r.stderr(), r.config.User+":", "indent with spaces")
	for words, want := range map[string]int{"version": 0, "config path": 0, "help ls": 0, "config check": 2, "config show": 2} {
		if code := r.run(t.Context(), strings.Fields(words)); code != want {
			t.Errorf("%s: exit code %d, want %d", words, code, want)
		}
	}
	must(t, os.Chmod(r.config.User, 0o666))
	if code := r.run(t.Context(), []string{"config", "check"}); code != 4 {
		t.Errorf("exit code %d for a file that other users may write, want 4", code)
	}
	mustContain(t, r.stderr(), "chmod go-w "+r.config.User)
}

func TestConfigCheckTriesDefaults(t *testing.T) {
	r := newTestProgram(t)
	r.writeSettings("defaults:\n  connections: many\n")
	if code := r.run(t.Context(), []string{"config", "check"}); code != 2 {
		t.Errorf("exit code %d", code)
	}
	mustContain(t, r.stderr(), r.config.User+`:2: defaults.connections: "many"`)
	r.writeSettings("defaults:\n  connections: 4\n  to: [dir:/a, dir:/b]\n  warm: true\n  server: https://h:8470\n  verbose: false\n")
	r.out.Reset()
	if code := r.run(t.Context(), []string{"config", "check"}); code != 0 || r.out.String() != "1 config file, no mistakes\n" {
		t.Errorf("exit code %d, %s", code, r.out)
	}
}

func TestConfigShowNamesOrigins(t *testing.T) {
	r := newTestProgram(t)
	r.config.System = filepath.Join(t.TempDir(), "system.yaml")
	must(t, os.WriteFile(r.config.System, []byte("defaults: {transport: nfc}\ntargets: {a: 'dir:/x'}\n"), 0o600))
	r.writeSettings("defaults:\n  transport: https\n")
	r.vars["DECAMP_SERVER"] = "https://h:8470"
	if code := r.run(t.Context(), []string{"config", "show", "--json"}); code != 0 {
		t.Fatal(code, r.stderr())
	}
	var got struct {
		Settings []struct{ Key, Value, Origin string }
	}
	must(t, json.Unmarshal(r.out.Bytes(), &got))
	want := []struct{ Key, Value, Origin string }{
		{"defaults.server", "https://h:8470", "$DECAMP_SERVER"}, {"defaults.transport", "https", r.config.User + ":2"}, {"targets.a", "dir:/x", r.config.System + ":2"},
	}
	for i := range want {
		if len(got.Settings) != len(want) || got.Settings[i] != want[i] {
			t.Fatalf("got %+v", got.Settings)
		}
	}
	r.out.Reset()
	r.run(t.Context(), []string{"config", "path"})
	if r.out.String() != r.config.System+"\n"+r.config.User+"\n" {
		t.Errorf("got paths %s", r.out)
	}
}
