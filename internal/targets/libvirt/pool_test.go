package libvirt

import (
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
)

func TestUnusablePoolsAreRefused(t *testing.T) {
	t.Parallel()
	d := sharedDaemon(t)
	s := newSite(t, d, false)
	d.virsh(t, "pool-define-as", "stopped", "dir", "--target", t.TempDir())
	defer d.virsh(t, "pool-undefine", "stopped")
	s.platform.at.pool = "stopped"
	if err := s.platform.Check(t.Context(), webVM(1<<20)); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("a stopped pool: %v", err)
	}
	for _, kind := range []string{"zfs", "rbd", "iscsi", "disk", "mpath"} {
		_, err := describePool(rpc.Pool{Name: "x"}, `<pool type="`+kind+`"><target><path>/dev/x</path></target></pool>`)
		if !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
			t.Errorf("a pool of type %s: %v", kind, err)
		}
	}
}

func isKnownPoolType(kind string) bool {
	_, ok := poolTypes[kind]
	return ok
}

// Every description of a pool or domain is either parsed or refused with a hint.
func FuzzDescriptions(f *testing.F) {
	f.Add(`<pool type="dir"><name>x</name><target><path>/var/lib/x</path></target></pool>`)
	f.Add(`<pool type="logical"><name>vg0</name><target><path>/dev/vg0</path></target></pool>`)
	f.Add(`<domain><metadata><delivery xmlns="urn:decamp:delivery:1" identity="6c61edc1332f1bf4" pool="default"/></metadata></domain>`)
	f.Add(`<domain><metadata><x:delivery xmlns:x="urn:decamp:delivery:1" identity="6c61edc1332f1bf4" pool="default"/></metadata></domain>`)
	p, err := New("qemu:///system", Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if into, err := describePool(rpc.Pool{}, text); err == nil {
			var x libvirtxml.StoragePool
			if err := x.Unmarshal(text); err != nil || !isKnownPoolType(x.Type) || into.folder != x.Target.Path {
				t.Errorf("%q is parsed as %+v, %v", text, into, err)
			}
		} else if fault.HintOf(err) == "" {
			t.Errorf("%v has no hint", err)
		}
		if p.domainFinder().hasMark(webVM(1), text) != p.domainFinder().hasMark(webVM(1), text+"\n") {
			t.Errorf("a line break at the end changes hasMark for %q", text)
		}
	})
}

// hasMark recognizes decamp's mark with and without an XML prefix, and no other metadata.
func TestMark(t *testing.T) {
	t.Parallel()
	p, err := New("qemu:///system?pool=vms", Options{})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{
		`<delivery xmlns="urn:decamp:delivery:1" identity="6c61edc1332f1bf4" pool="vms"/>`:        true,
		`<d:delivery xmlns:d="urn:decamp:delivery:1" identity="6c61edc1332f1bf4" pool="vms"/>`:    true,
		`<delivery xmlns="urn:decamp:delivery:1" identity="6c61edc1332f1bf4" pool="default"/>`:    false,
		`<delivery xmlns="urn:decamp:delivery:1" identity="0000000000000000" pool="vms"/>`:        false,
		`<delivery xmlns="urn:somebody:else" identity="6c61edc1332f1bf4" pool="vms"/>`:            false,
		`<source xmlns="urn:decamp:source:1" ref="7"/>`:                                           false,
		`<a/><delivery xmlns="urn:decamp:delivery:1" identity="6c61edc1332f1bf4" pool="vms"/>`:    true,
		`<a><delivery xmlns="urn:decamp:delivery:1" identity="6c61edc1332f1bf4" pool="vms"/></a>`: false,
	}
	for metadata, want := range tests {
		if got := p.domainFinder().hasMark(webVM(1), "<domain><metadata>"+metadata+"</metadata></domain>"); got != want {
			t.Errorf("%s: got %v, want %v", metadata, got, want)
		}
	}
}
