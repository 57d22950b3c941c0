//go:build slow

package convert

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/fault"
)

// A conversion fails with a clear error if mounting changes more than the limit of the overlay.
// TestOverlayRefusesWritesBeyondLimit of package overlay tests the limit itself.
func TestApplianceConversionFailsAtOverlayLimit(t *testing.T) {
	t.Parallel()
	disks := openDisksWithLimit(t, 16<<10, newDisk(t, newXFS(t, newDebian("/dev/sda1"))))
	_, err := convert.LinuxAppend(t.Context(), disks, convert.Options{Appliance: newAppliance(t)})
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "would be changed") || len(disks[0].Overlay.Changed()) != 0 {
		t.Errorf("%v, %d ranges", err, len(disks[0].Overlay.Changed()))
	}
}
