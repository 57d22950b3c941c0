package libvirt

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets/platform"
)

func TestExamine(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	s.platform.opts.Type = "qemu"
	for _, a := range []platform.Aspect{platform.Login, platform.Parts, platform.Storage} {
		results := s.platform.Examine(t.Context(), a)
		if len(results) != 1 || results[0].Err != nil || results[0].State == "" {
			t.Errorf("%s: %+v", a, results)
		}
	}
	for _, a := range []platform.Aspect{platform.Rights, platform.Clock} { // libvirt does not report these
		if results := s.platform.Examine(t.Context(), a); len(results) > 0 {
			t.Errorf("%s: %+v", a, results)
		}
	}
}

func TestExamineReportsMissingObjects(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	s.platform.opts.Type = "vmware"
	s.platform.opts.Maps = namemap.Map{
		Networks: map[string]namemap.Network{"prod": {To: "nowhere"}, "dmz": {To: "bridge:br9"}, "*": {To: "bridge:br0"}},
		Storages: map[string]string{"ssd1": "gold", "ssd2": "gold"},
	}
	if results := s.platform.Examine(t.Context(), platform.Parts); !fault.Is(results[0].Err, fault.Unsupported) {
		t.Errorf("type: %+v", results)
	}
	pools := s.platform.Examine(t.Context(), platform.Storage)
	if len(pools) != 2 || pools[0].Err != nil || pools[1].Object != "pool gold" || !fault.Is(pools[1].Err, fault.NotFound) {
		t.Errorf("pools: %+v", pools)
	}
	networks := s.platform.Examine(t.Context(), platform.Network)
	if len(networks) != 1 || networks[0].Object != "network nowhere" || !networks[0].WarningOnly || !strings.Contains(fault.HintOf(networks[0].Err), "net-list") {
		t.Errorf("networks: %+v", networks)
	}
	none, err := New("qemu:///system?socket="+filepath.Join(t.TempDir(), "none"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if results := none.Examine(t.Context(), platform.Login); len(results) != 1 || !fault.Is(results[0].Err, fault.Unreachable) {
		t.Errorf("no libvirtd: %+v", results)
	}
}

// The completion of pool= offers the pools that decamp can write to.
func TestListValues(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	s.virsh(t, "pool-define-as", "stopped", "dir", "--target", t.TempDir())
	defer s.virsh(t, "pool-undefine", "stopped")
	names, err := s.platform.ListValues(t.Context(), "pool")
	if err != nil || !slices.Contains(names, s.platform.at.pool) || slices.Contains(names, "stopped") {
		t.Errorf("got pools %q, %v", names, err)
	}
	if names, err := s.platform.ListValues(t.Context(), "socket"); names != nil || err != nil {
		t.Errorf("a parameter without names: %q, %v", names, err)
	}
}
