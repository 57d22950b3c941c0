package knownhosts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/knownhosts"
)

func TestHostsAreStoredInAPrivateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known.json")
	f, err := knownhosts.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, found := f.Find("esx1:443"); found {
		t.Error("found a host in a missing file")
	}
	for _, entry := range []string{"esx1:443", "esx2:443"} {
		if err := f.Add(entry, "AA:"+entry, "CN=x"); err != nil {
			t.Fatal(err)
		}
	}
	again, err := knownhosts.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if h, found := again.Find("esx1:443"); !found || h.SHA256 != "AA:esx1:443" || h.Subject != "CN=x" || h.Since.IsZero() {
		t.Errorf("got %+v, %v", h, found)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, error %v; want 0600", st.Mode(), err)
	}
}

func TestInvalidFileIsCorrupt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known.json")
	if err := os.WriteFile(path, []byte(`{"esx1`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := knownhosts.Load(path); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(path, []byte(`null`), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := knownhosts.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Add("esx1:443", "AA", "CN=x"); err != nil {
		t.Error(err)
	}
}
