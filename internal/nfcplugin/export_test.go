package nfcplugin

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab"
)

func newValue(name, text string) Value { return Value{Name: name, Value: text} }

// requiredValues are the required parameters.
var requiredValues = []Value{newValue("server", "[fe80::1]"), newValue("vm", "moref=vm-7"), newValue("file", "[ds 1] a/b.vmdk"), newValue("password", "+x")}

func TestParametersOfVirtV2V(t *testing.T) {
	p, err := ParseParameters(append(slices.Clone(requiredValues), newValue("insecure", "True"), newValue("user", "eve"), newValue("thumbprint", strings.Repeat("aB:", 19)+"00"),
		newValue("port", "444"), newValue("nfchostport", "903"), newValue("snapshot", "snapshot-1"), newValue("cookie", "c"), newValue("transport", "https"), newValue("connections", "16"), newValue("known-hosts", "/k"), newValue("plain", "yes")))
	if err != nil {
		t.Fatal(err)
	}
	if p.addr() != "[fe80::1]:444" || p.VM != "vm-7" || p.File.String() != "[ds 1] a/b.vmdk" || !p.Insecure || p.User != "eve" ||
		formatSum(p.Thumbprint) != strings.Repeat("AB:", 19)+"00" || p.NFCPort != 903 || p.Snapshot != "snapshot-1" ||
		p.Connections != 16 || p.Transport != transportHTTPS || string(p.Password) != "+x" || p.KnownHosts != "/k" || !p.Plain {
		t.Errorf("got %+v", p)
	}
	p, err = ParseParameters(requiredValues)
	if err != nil || p.User != "root" || p.Transport != transportNFC || p.Insecure || p.addr() != "[fe80::1]:443" {
		t.Errorf("defaults: %+v, %v", p, err)
	}
}

func TestInvalidParameters(t *testing.T) {
	for _, v := range []struct {
		value Value
		want  string
	}{
		{newValue("conections", "1"), "did you mean connections=?"},
		{newValue("x", "1"), "the parameters are server, vm"},
		{newValue("server", "again"), "twice"},
		{newValue("user", ""), "no value"},
		{newValue("connections", "0"), "1 to 16"},
		{newValue("snapshot", ""), "no value"},
		{newValue("thumbprint", "zz"), "SHA-1"},
	} {
		_, err := ParseParameters(append(slices.Clone(requiredValues), v.value))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%v: %v", v.value, err)
		}
	}
	for i := range requiredValues {
		if _, err := ParseParameters(slices.Delete(slices.Clone(requiredValues), i, i+1)); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "required") {
			t.Errorf("without %s: %v", requiredValues[i].Name, err)
		}
	}
}

func TestExtentsAreMerged(t *testing.T) {
	extent := func(off, length int64, kind disk.Kind) disk.Extent {
		return disk.Extent{Range: disk.Range{Off: off, Len: length}, Kind: kind}
	}
	all := []disk.Extent{extent(0, 1, disk.Zero), extent(1, 2, disk.Zero), extent(3, 1, disk.Data), extent(4, 1, disk.Zero)}
	want := []disk.Extent{extent(0, 3, disk.Zero), extent(3, 1, disk.Data), extent(4, 1, disk.Zero)}
	if got := mergeExtents(all, false); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := mergeExtents(all, true); !slices.Equal(got, want[:1]) {
		t.Errorf("first: %v", got)
	}
}

func TestMessage(t *testing.T) {
	err := fault.New(fault.Denied, "a\nb")
	for hint, want := range map[string]string{"": "a b", "check the\nname": "a b; check the name", "set --nfc-handles 1": "a b", "run decamp ls": "a b"} {
		if got := Message(err.WithHint("%s", hint)); got != want {
			t.Errorf("%q: got %q, want %q", hint, got, want)
		}
	}
}

// An export can be opened, described, read and closed with each transport.
func TestExportOfALab(t *testing.T) {
	l, err := lab.Start(context.Background(), lab.Config{VMs: []lab.VM{{
		Name: "web01", ChangeTracking: true, Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 50, Seed: 1}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	host, port, err := net.SplitHostPort(l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	want, err := l.Disk("web01", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{transportNFC, transportHTTPS} {
		p, err := ParseParameters([]Value{newValue("server", host), newValue("port", port), newValue("vm", "moref="+referenceOf(t, l)), newValue("file", "[datastore1] web01/web01.vmdk"),
			newValue("user", l.User()), newValue("password", l.Password()), newValue("thumbprint", l.Fingerprint()), newValue("transport", name)})
		if err != nil {
			t.Fatal(err)
		}
		e, err := Open(t.Context(), p, Options{Log: slog.New(slog.DiscardHandler), Warn: func(text string) { t.Error(text) }})
		if err != nil {
			t.Fatal(err)
		}
		got, bytes := make([]byte, 8<<20), make([]byte, 8<<20)
		if _, err := want.ReadAt(bytes, 0); err != nil {
			t.Fatal(err)
		}
		if err := e.ReadAt(t.Context(), got, 0); err != nil || !slices.Equal(got, bytes) || e.Size() != want.Size {
			t.Errorf("%s: %d bytes, equal %v, %v", name, e.Size(), slices.Equal(got, bytes), err)
		}
		whole := disk.Range{Len: want.Size}
		if all, err := e.Extents(t.Context(), whole, false); err != nil || len(all) < 2 {
			t.Errorf("%s: extents %v, %v", name, all, err)
		}
		if first, err := e.Extents(t.Context(), whole, true); err != nil || len(first) != 1 {
			t.Errorf("%s: first extent %v, %v", name, first, err)
		}
		if !strings.Contains(e.Description(), "VM web01") {
			t.Error(e.Description())
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if s := l.Stats(); s.SOAP["Login"] != s.SOAP["Logout"] || s.NFC.SessionsOpen != 0 {
		t.Errorf("%v, %d NFC sessions", s.SOAP, s.NFC.SessionsOpen)
	}
}

// referenceOf returns the reference of the VM web01.
func referenceOf(t *testing.T, l *lab.Lab) string {
	t.Helper()
	u, err := esx.ParseURL("esxi://" + l.User() + "@" + l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	s, err := esx.Dial(t.Context(), esx.Config{
		URL: u, Fingerprint: l.Fingerprint(), Password: func(context.Context) (esx.Secret, error) { return esx.Secret(l.Password()), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	vm, err := s.VM(t.Context(), "web01")
	if err != nil {
		t.Fatal(err)
	}
	return string(vm.Ref)
}
