package libvirt

import (
	"testing"

	"github.com/decamp/decamp/internal/targets/targettest"
)

func TestConformanceWithLinkedImages(t *testing.T) {
	t.Parallel()
	h := newHarness(sharedDaemon(t), false)
	h.SecondMode = true // TestConformanceWithUploadedImages runs all cases
	targettest.Run(t, h)
}

func TestConformanceWithUploadedImages(t *testing.T) {
	t.Parallel()
	targettest.Run(t, newHarness(sharedDaemon(t), true))
}
