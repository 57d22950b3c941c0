package testboot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/efi"
)

// A domain's own firmware is used where both of its files are here; else that of this machine, and it is said.
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
		"code elsewhere":   {"/no/such/code.fd", vars, false},
		"vars elsewhere":   {code, "/no/such/vars.fd", false},
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
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if said := strings.Join(m.less, ""); (said == "") != (tt.own || tt.vars == "") {
			t.Errorf("%s: said %q", name, said)
		}
	}
}
