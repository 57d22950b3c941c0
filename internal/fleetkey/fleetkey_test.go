package fleetkey

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func createKeys(t *testing.T) (path string, k *Keys) {
	t.Helper()
	path = filepath.Join(t.TempDir(), FileName)
	k, err := Create(path)
	must(t, err)
	return path, k
}

func TestSignaturesCoverUseAndFields(t *testing.T) {
	_, k := createKeys(t)
	_, other := createKeys(t)
	signature := k.Sign("plan", "a", "bc")
	must(t, k.Verify(signature, "plan", "a", "bc"))
	for what, err := range map[string]error{
		"another use":        k.Verify(signature, "vm", "a", "bc"),
		"another field":      k.Verify(signature, "plan", "a", "bd"),
		"another boundary":   k.Verify(signature, "plan", "ab", "c"),
		"one field more":     k.Verify(signature, "plan", "a", "bc", ""),
		"one field less":     k.Verify(signature, "plan", "a"),
		"no signature":       k.Verify("", "plan", "a", "bc"),
		"another key":        other.Verify(signature, "plan", "a", "bc"),
		"another key's name": other.Verify(other.IDs()[0]+signature[strings.Index(signature, ":"):], "plan", "a", "bc"),
		"truncated":          k.Verify(signature[:len(signature)-1], "plan", "a", "bc"),
		"only the id":        k.Verify(k.IDs()[0]+":", "plan", "a", "bc"),
		"garbage":            k.Verify("::", "plan", "a", "bc"),
	} {
		if !fault.Is(err, fault.Denied) {
			t.Errorf("%s: got %v, want Denied", what, err)
		}
	}
}

func TestKeysAreRotated(t *testing.T) {
	path, first := createKeys(t)
	old := first.Sign("plan", "text")
	both, err := Add(path)
	must(t, err)
	loaded, err := Load(path)
	must(t, err)
	if !slices.Equal(loaded.IDs(), both.IDs()) || loaded.IDs()[0] != first.IDs()[0] || len(loaded.IDs()) != 2 {
		t.Fatalf("keys %s, want %s and a new one", loaded, first)
	}
	must(t, first.Verify(loaded.Sign("plan", "text"), "plan", "text")) // the first key still signs

	text, err := os.ReadFile(path)
	must(t, err)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, linePrefix) {
			lines = append(lines, line)
		}
	}
	swapped, err := Parse([]byte(lines[1] + lines[0]))
	must(t, err)
	must(t, swapped.Verify(old, "plan", "text"))
	if first.Verify(swapped.Sign("plan", "text"), "plan", "text") == nil {
		t.Error("the first key of the file was not used to sign")
	}
	next, err := Parse([]byte(lines[1]))
	must(t, err)
	if err := next.Verify(old, "plan", "text"); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), next.IDs()[0]) {
		t.Errorf("signature of a removed key: got %v, want Denied with the ID of the remaining key", err)
	}
}

func TestKeyFilesArePrivateToOwner(t *testing.T) {
	path, _ := createKeys(t)
	if _, err := Create(path); !fault.Is(err, fault.Conflict) {
		t.Errorf("Create of an existing file: got %v, want Conflict", err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("mode is %v, want 0600; %v", st.Mode(), err)
	}
	if _, err := Add(path); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("mode after Add is %v, want 0600; %v", st.Mode(), err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660, 0o610, 0o602} {
		must(t, os.Chmod(path, mode))
		if _, err := Load(path); !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "chmod 600") {
			t.Errorf("mode %#o: got %v, want Denied with a hint on chmod", mode, err)
		}
	}
	t.Setenv("CREDENTIALS_DIRECTORY", filepath.Dir(path))
	must(t, os.Chmod(path, 0o440))
	if _, err := Load(path); err != nil {
		t.Errorf("systemd credential: got %v, want no error", err)
	}
	must(t, os.Chmod(path, 0o444))
	if _, err := Load(path); !fault.Is(err, fault.Denied) {
		t.Errorf("credential that all users can read: got %v, want Denied", err)
	}
	if _, err := Load(filepath.Dir(path)); err == nil {
		t.Error("a folder was read as a key")
	}
	if _, err := Load(path + "x"); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "decamp key new") {
		t.Errorf("missing file: got %v (hint %q), want NotFound with a hint", err, fault.HintOf(err))
	}
}

// If several processes start at the same time, one creates the key and all use it.
func TestEnsureMakesOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	var ids [8]string
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			k, err := Ensure(path)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = k.String()
		})
	}
	group.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("keys %q, want one", ids)
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("files in the folder are %v, %v; want only the key", left, err)
	}
}

func TestRefusedKeyFiles(t *testing.T) {
	line := newRandomKey().toLine()
	for what, text := range map[string]string{
		"nothing":    "",
		"a comment":  "# " + line,
		"short":      line[:len(line)-2],
		"long":       line + "AAAA",
		"no prefix":  line[len(linePrefix):],
		"twice":      line + "\n" + line + "\n",
		"other line": line + "\npassword\n",
		"huge":       strings.Repeat("#", maxFile+1),
	} {
		_, err := Parse([]byte(text))
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v, want Invalid", what, err)
		}
		if err != nil && (strings.Contains(err.Error(), "password") || strings.Contains(err.Error(), line[len(linePrefix):len(linePrefix)+8])) {
			t.Errorf("%s: the error contains the line: %v", what, err)
		}
	}
	many := ""
	for range maxKeys + 1 {
		many += newRandomKey().toLine() + "\n"
	}
	if _, err := Parse([]byte(many)); !fault.Is(err, fault.Invalid) {
		t.Errorf("%d keys: got %v, want Invalid", maxKeys+1, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fileHeader + newRandomKey().toLine() + "\r\n\n" + newRandomKey().toLine()))
	f.Add([]byte(linePrefix))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := Parse(text)
		if err != nil {
			return
		}
		if n := len(k.IDs()); n < 1 || n > maxKeys {
			t.Fatalf("%d keys, want 1 to %d", n, maxKeys)
		}
		must(t, k.Verify(k.Sign("use", "field"), "use", "field"))
	})
}
