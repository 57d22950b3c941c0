//go:build slow

package convert

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/fault"
)

// A layer that may not grow as far as mounting makes it is an error that says so. TestTooMuchIsRefusedWhole of package
// overlay has the limit itself.
func TestApplianceWithinTheOverlaysLimit(t *testing.T) {
	t.Parallel()
	disks := layeredWithin(t, 16<<10, diskOf(t, xfsOf(t, linux("/dev/sda1"))))
	_, err := convert.LinuxAppend(t.Context(), disks, convert.Options{Appliance: ourAppliance(t)})
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "would be changed") || len(disks[0].Overlay.Changed()) != 0 {
		t.Errorf("%v, %d ranges", err, len(disks[0].Overlay.Changed()))
	}
}
