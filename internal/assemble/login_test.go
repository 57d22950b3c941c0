package assemble

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

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

func TestPasswordFileWithoutFinalNewline(t *testing.T) {
	for content, want := range map[string]string{
		"sesame": "sesame", "sesame\n": "sesame", "sesame\r\n": "sesame", " se same \n": " se same ", "sesame\n\n": "sesame\n",
	} {
		r := newTestAssembler(t)
		got, err := r.Password("root@h", passwordFile(t, content, 0o600))(t.Context())
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v", content, got, err)
		}
		if r.warnings.String() != "" {
			t.Errorf("%q: got warnings %s", content, r.warnings.String())
		}
	}
}

func TestPasswordFileFromTheEnvironment(t *testing.T) {
	r := newTestAssembler(t)
	r.vars[PasswordEnv] = passwordFile(t, "from-env\n", 0o600)
	if got, err := r.Password("root@h", "")(t.Context()); err != nil || got != "from-env" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := r.Password("root@h", passwordFile(t, "from-flag", 0o600))(t.Context()); err != nil || got != "from-flag" {
		t.Errorf("got %q, %v; want the password file of the flag", got, err)
	}
}

func TestReadablePasswordFileCausesWarning(t *testing.T) {
	r := newTestAssembler(t)
	if _, err := r.Password("root@h", passwordFile(t, "x", 0o644))(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustContain(t, r.warnings.String(), "Warning: other users of this machine may read", "chmod 600")
}

func TestPasswordIsUnavailable(t *testing.T) {
	for name, file := range map[string]string{
		"no terminal": "", "no file": "/nonexistent/pw", "empty": passwordFile(t, "\n", 0o600),
		"huge": passwordFile(t, string(make([]byte, 5000)), 0o600),
	} {
		_, err := newTestAssembler(t).Password("root@h", file)(t.Context())
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v, want Invalid", name, err)
		}
		if file == "" {
			mustContain(t, fault.HintOf(err), "--password-file", PasswordEnv)
		}
	}
}

func TestTerminalPromptsOnce(t *testing.T) {
	r := newTestAssembler(t)
	password := r.Password("root@h", "")
	if _, err := password(t.Context()); !fault.Is(err, fault.Invalid) {
		t.Errorf("first: %v", err)
	}
	if _, err := password(t.Context()); !fault.Is(err, fault.Denied) {
		t.Errorf("second: %v", err)
	}
}

func TestPasswordFileIsReadAgain(t *testing.T) {
	r := newTestAssembler(t)
	path := passwordFile(t, "old", 0o600)
	password := r.Password("root@h", path)
	for _, want := range []string{"old", "new"} {
		if got, err := password(t.Context()); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLoginsAreLimitedAfterRefusedPasswords(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "it's refused")
	r := &refusals{path, "root@esx1:443", func() time.Time { return now }}
	other := &refusals{path, "root@esx2:443", r.now}
	refused := errors.New("wrong password")
	addResult := func(err error) {
		t.Helper()
		if err := r.addResult(err); err != nil {
			t.Fatal(err)
		}
	}
	for range maxRefusals {
		if err := r.checkLimit(); err != nil {
			t.Fatal(err)
		}
		addResult(refused)
		now = now.Add(time.Minute)
	}
	err := r.checkLimit()
	if !fault.Is(err, fault.Denied) {
		t.Fatalf("a login above the limit: %v", err)
	}
	mustContain(t, fault.HintOf(err), "wait 12m0s", "rm "+fault.Quote(path))
	if err := other.checkLimit(); err != nil {
		t.Errorf("another host: %v", err)
	}
	now = now.Add(12 * time.Minute)
	if err := r.checkLimit(); err != nil {
		t.Errorf("15 minutes after the first refusal: %v", err)
	}
	addResult(refused)
	addResult(nil)
	for range maxRefusals - 1 {
		addResult(refused)
	}
	if err := r.checkLimit(); err != nil {
		t.Errorf("a successful login did not reset the count: %v", err)
	}
}

func TestDamagedRefusalFileHasRemedy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "refused")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := (&refusals{path, "root@esx1:443", time.Now}).checkLimit()
	if !fault.Is(err, fault.Corrupt) || fault.HintOf(err) != "run: rm "+path {
		t.Errorf("got %v, remedy %q", err, fault.HintOf(err))
	}
}
