package fleet

import (
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

func TestCheckLimitRefusesUnknownLimits(t *testing.T) {
	for _, name := range []string{"host:esx1/vms", "host:*/disks", "source:vc1:443/rate", "target:dir:/srv/vm/rate", "worker:w1/vms", "plan:wave-1/rate", "fleet:all/rate"} {
		if err := CheckLimit(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "/", "host", "host:esx1", "hosts:esx1/vms", "host:/vms", "host:esx1/vm", "plan:wave-1/vms", "link:wan/rate", "fleet/rate"} {
		if err := CheckLimit(name); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("%q: got %v, want invalid with a hint", name, err)
		}
	}
}
