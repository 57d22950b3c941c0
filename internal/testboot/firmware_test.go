package testboot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/efi"
)

// The firmware of the domain is used if both of its files exist. Otherwise the firmware of this machine is used, and
// the report mentions it.
func TestFirmwareOfTheDomain(t *testing.T) {
	here, err := efi.FindFirmware("/", false)
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	code, vars := filepath.Join(dir, "code.fd"), filepath.Join(dir, "vars.fd")
	for _, file := range []string{code, vars, vars + ".qcow2"} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		code, vars string
		own        bool
	}{
		"both":             {code, vars, true},
		"no template":      {code, "", false},
		"no code file":     {"/no/such/code.fd", vars, false},
		"no vars file":     {code, "/no/such/vars.fd", false},
		"a qcow2 template": {code, vars + ".qcow2", false},
	} {
		m := &machine{opts: Options{Root: "/"}, domain: &libvirtxml.Domain{OS: &libvirtxml.DomainOS{
			Loader: &libvirtxml.DomainLoader{Path: tt.code, Type: "pflash"}, NVRam: &libvirtxml.DomainNVRam{Template: tt.vars},
		}}}
		got, err := m.findOVMF()
		want := here
		if tt.own {
			want = efi.Firmware{Code: code, Vars: vars}
		}
		if err != nil || got != want {
			t.Errorf("%s: got %+v, want %+v, error %v", name, got, want, err)
		}
		if differences := strings.Join(m.less, ""); (differences == "") != (tt.own || tt.vars == "") {
			t.Errorf("%s: reported differences %q", name, differences)
		}
	}
}
