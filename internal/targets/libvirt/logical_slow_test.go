//go:build slow

package libvirt

import (
	"testing"

	"github.com/decamp/decamp/internal/targets/targettest"
)

// Each pool takes several seconds, because libvirt runs LVM commands for every step.
func TestConformanceOnLVM(t *testing.T) {
	t.Parallel()
	d := sharedDaemon(t)
	h := newHarness(d, true)
	h.New = func(t *testing.T) targettest.Site { return newGroupSite(t, d).site() }
	targettest.Run(t, h)
}
