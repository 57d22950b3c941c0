package libvirt

import (
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
)

func TestPoolsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	d := sharedDaemon(t)
	s := newSite(t, d, false)
	d.virsh(t, "pool-define-as", "stopped", "dir", "--target", t.TempDir())
	defer d.virsh(t, "pool-undefine", "stopped")
	s.place.at.pool = "stopped"
	if err := s.place.Check(t.Context(), webVM(1<<20)); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("a pool that is not started: %v", err)
	}
	for _, kind := range []string{"zfs", "rbd", "iscsi", "disk", "mpath"} {
		_, err := describePool(rpc.Pool{Name: "x"}, `<pool type="`+kind+`"><target><path>/dev/x</path></target></pool>`)
		if !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
			t.Errorf("a pool of type %s: %v", kind, err)
		}
	}
}

func known(kind string) bool {
	_, ok := poolTypes[kind]
	return ok
}

// FuzzDescriptions: whatever a libvirt says of pools and domains, it is understood or refused.
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
			if err := x.Unmarshal(text); err != nil || !known(x.Type) || into.folder != x.Target.Path {
				t.Errorf("%q is %+v, %v", text, into, err)
			}
		} else if fault.HintOf(err) == "" {
			t.Errorf("%v has no remedy", err)
		}
		if p.domainFinder().hasMark(webVM(1), text) != p.domainFinder().hasMark(webVM(1), text+"\n") {
			t.Errorf("%q is ours, or not", text)
		}
	})
}

// What libvirt makes of our mark, with or without a prefix, is ours; what others wrote is not.
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
			t.Errorf("%s: %v", metadata, got)
		}
	}
}
