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
	s.place.opts.Type = "qemu"
	for _, a := range []platform.Aspect{platform.Login, platform.Parts, platform.Storage} {
		looks := s.place.Examine(t.Context(), a)
		if len(looks) != 1 || looks[0].Err != nil || looks[0].State == "" {
			t.Errorf("%s: %+v", a, looks)
		}
	}
	for _, a := range []platform.Aspect{platform.Rights, platform.Clock} { // libvirt does not tell
		if looks := s.place.Examine(t.Context(), a); len(looks) > 0 {
			t.Errorf("%s: %+v", a, looks)
		}
	}
}

func TestExamineTellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	s.place.opts.Type = "vmware"
	s.place.opts.Maps = namemap.Map{
		Networks: map[string]namemap.Network{"prod": {To: "nowhere"}, "dmz": {To: "bridge:br9"}, "*": {To: "bridge:br0"}},
		Storages: map[string]string{"ssd1": "gold", "ssd2": "gold"},
	}
	if looks := s.place.Examine(t.Context(), platform.Parts); !fault.Is(looks[0].Err, fault.Unsupported) {
		t.Errorf("type: %+v", looks)
	}
	pools := s.place.Examine(t.Context(), platform.Storage)
	if len(pools) != 2 || pools[0].Err != nil || pools[1].Object != "pool gold" || !fault.Is(pools[1].Err, fault.NotFound) {
		t.Errorf("pools: %+v", pools)
	}
	networks := s.place.Examine(t.Context(), platform.Network)
	if len(networks) != 1 || networks[0].Object != "network nowhere" || !networks[0].WarningOnly || !strings.Contains(fault.HintOf(networks[0].Err), "net-list") {
		t.Errorf("networks: %+v", networks)
	}
	none, err := New("qemu:///system?socket="+filepath.Join(t.TempDir(), "none"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if looks := none.Examine(t.Context(), platform.Login); len(looks) != 1 || !fault.Is(looks[0].Err, fault.Unreachable) {
		t.Errorf("nobody: %+v", looks)
	}
}

// The completion of pool= offers the pools that decamp can write to.
func TestListValues(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	s.virsh(t, "pool-define-as", "stopped", "dir", "--target", t.TempDir())
	defer s.virsh(t, "pool-undefine", "stopped")
	names, err := s.place.ListValues(t.Context(), "pool")
	if err != nil || !slices.Contains(names, s.place.at.pool) || slices.Contains(names, "stopped") {
		t.Errorf("%q, %v", names, err)
	}
	if names, err := s.place.ListValues(t.Context(), "socket"); names != nil || err != nil {
		t.Errorf("a parameter without names: %q, %v", names, err)
	}
}
