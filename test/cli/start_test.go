package cli

import (
	"testing"

	"github.com/decamp/decamp/internal/lab"
)

// What starts nothing is refused before anything is copied, and so is one VM in two places.
func TestStartIsRefusedBeforeTheCopy(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 64, Disks: []lab.Disk{{Capacity: 1 << 20}}}}}).trusting()
	r.migrate("web01", "--start").ends(7).says("starts no VMs", "leave --start out")
	r.migrate("web01", "--start", "--dry-run").ends(7).says("starts no VMs")
	r.migrate("web01", "--start", "--to", "dir:"+r.dir).ends(2).says("two of one VM would run")
	if n := r.lab.Stats().BodyBytes; n > 0 {
		t.Errorf("%d bytes of disks were sent", n)
	}
}
