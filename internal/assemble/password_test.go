package assemble

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

func passwordFile(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPasswordFileLosesOneNewlineAndNothingElse(t *testing.T) {
	for content, want := range map[string]string{
		"sesame": "sesame", "sesame\n": "sesame", "sesame\r\n": "sesame", " se same \n": " se same ", "sesame\n\n": "sesame\n",
	} {
		r := newMachine(t)
		got, err := r.Password("root@h", passwordFile(t, content, 0o600))(t.Context())
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v", content, got, err)
		}
		if r.said.String() != "" {
			t.Errorf("%q: warned: %s", content, r.said.String())
		}
	}
}

func TestPasswordFileFromTheEnvironment(t *testing.T) {
	r := newMachine(t)
	r.vars[PasswordEnv] = passwordFile(t, "from-env\n", 0o600)
	if got, err := r.Password("root@h", "")(t.Context()); err != nil || got != "from-env" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := r.Password("root@h", passwordFile(t, "from-flag", 0o600))(t.Context()); err != nil || got != "from-flag" {
		t.Errorf("the flag does not win: %q, %v", got, err)
	}
}

func TestPasswordFileThatOthersReadIsWarnedAbout(t *testing.T) {
	r := newMachine(t)
	if _, err := r.Password("root@h", passwordFile(t, "x", 0o644))(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustContain(t, r.said.String(), "Warning: others on this machine may read", "chmod 600")
}

func TestPasswordThatCannotBeHad(t *testing.T) {
	for name, file := range map[string]string{
		"nobody to ask": "", "no file": "/nonexistent/pw", "empty": passwordFile(t, "\n", 0o600),
		"huge": passwordFile(t, string(make([]byte, 5000)), 0o600),
	} {
		_, err := newMachine(t).Password("root@h", file)(t.Context())
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
		if file == "" {
			mustContain(t, fault.HintOf(err), "--password-file", PasswordEnv)
		}
	}
}

func TestTerminalIsAskedOnce(t *testing.T) {
	r := newMachine(t)
	ask := r.Password("root@h", "")
	if _, err := ask(t.Context()); !fault.Is(err, fault.Invalid) {
		t.Errorf("first: %v", err)
	}
	if _, err := ask(t.Context()); !fault.Is(err, fault.Denied) {
		t.Errorf("second: %v", err)
	}
}

func TestPasswordFileIsReadAgain(t *testing.T) {
	r := newMachine(t)
	path := passwordFile(t, "old", 0o600)
	ask := r.Password("root@h", path)
	for _, want := range []string{"old", "new"} {
		if got, err := ask(t.Context()); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
