//go:build slow

package libvirt

import (
	"testing"

	"github.com/decamp/decamp/internal/targets/targettest"
)

// Each of its many pools takes seconds: libvirt runs LVM's programs at every step.
func TestConformanceOnLVM(t *testing.T) {
	t.Parallel()
	d := sharedDaemon(t)
	h := harness(d, true)
	h.New = func(t *testing.T) targettest.Site { return newGroupSite(t, d).site() }
	targettest.Run(t, h)
}
