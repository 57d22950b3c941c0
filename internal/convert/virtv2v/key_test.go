package virtv2v

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// keyFile creates a key file that only its owner can read.
func keyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a:key") // virt-v2v does not accept a name with a colon
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParseKey(t *testing.T) {
	t.Parallel()
	const uuid = "8F1D2B9C-0000-4000-8000-00000000000A"
	for text, want := range map[string]Key{
		"/etc/keys/web":            {File: "/etc/keys/web"},
		"a=b.key":                  {File: "a=b.key"},
		"/dev/sda2=/etc/a=b":       {ID: "/dev/sda2", File: "/etc/a=b"},
		"/dev/vg-0/root=k":         {ID: "/dev/vg-0/root", File: "k"},
		uuid + "=/etc/keys/web":    {ID: strings.ToLower(uuid), File: "/etc/keys/web"},
		"/dev/sda2:key:secret=/k":  {File: "/dev/sda2:key:secret=/k"},
		"/dev/sda2=":               {File: "/dev/sda2="},
		"8f1d2b9c=/etc/keys/other": {File: "8f1d2b9c=/etc/keys/other"},
	} {
		got := ParseKey(text)
		if got != want || ParseKey(got.String()) != got {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

// The error contains the path of the key file, but never its content.
func TestInvalidKeyFilesAreRefused(t *testing.T) {
	t.Parallel()
	shared := keyFile(t, "hush\n")
	if err := os.Chmod(shared, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]fault.Kind{
		"/nowhere/key": fault.NotFound, t.TempDir(): fault.Invalid, shared: fault.Denied, keyFile(t, ""): fault.Invalid, keyFile(t, "\n"): fault.Invalid,
		keyFile(t, "hush\nhush\n"): fault.Invalid, keyFile(t, "hush\x00\x01"): fault.Invalid, keyFile(t, strings.Repeat("hush", 2000)): fault.Invalid,
	} {
		err := CheckKeys([]Key{{File: keyFile(t, "good")}, {File: path}})
		if !fault.Is(err, kind) || !strings.Contains(err.Error(), path) || !strings.Contains(fault.HintOf(err), "chmod 600") || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v (%s)", path, err, fault.HintOf(err))
		}
	}
}

// virt-v2v reads each key, without the newline, from a file descriptor, for each locked volume. No argument, log or
// file contains a key.
func TestKeysAreSentByFileDescriptor(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, "2.2.0", oldHelp, "")
	j := s.job()
	j.Locked = []Locked{{Device: "/dev/sda2", Kind: "BitLocker"}, {UUID: "8f1d2b9c-0000-4000-8000-00000000000a", Device: "/dev/sdb1", Kind: "crypto_LUKS"}}
	j.Keys = []Key{{File: keyFile(t, "hush one\n")}, {ID: "/dev/sda2", File: keyFile(t, "hush-two\r\n")}}
	if _, err := s.engine(Options{}).Convert(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	args := s.readFile("args")
	want := "--key all:file:/dev/fd/3 --key /dev/sda2:file:/dev/fd/3 --key 8f1d2b9c-0000-4000-8000-00000000000a:file:/dev/fd/3 --key /dev/sda2:file:/dev/fd/4 -i libvirtxml"
	if !strings.Contains(args, want) || strings.Contains(args, "hush") {
		t.Errorf("arguments %q", args)
	}
	if got := s.readFile("keys"); got != "hush one\nhush one\nhush one\nhush-two\n" {
		t.Errorf("virt-v2v read the keys %q", got)
	}
	if strings.Contains(s.readFile("virt-v2v.log")+s.readFile("env"), "hush") {
		t.Error("the log or the environment contains a key")
	}
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), "decamp-v2v-*", "*"))
	for _, path := range left {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "hush") {
			t.Errorf("%s contains a key", path)
		}
	}
}
