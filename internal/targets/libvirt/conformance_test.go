package libvirt

import (
	"testing"

	"github.com/decamp/decamp/internal/targets/targettest"
)

func TestConformanceWhereImagesAreLinked(t *testing.T) {
	t.Parallel()
	h := harness(sharedDaemon(t), false)
	h.SecondMode = true // TestConformanceWhereImagesAreUploaded has the other
	targettest.Run(t, h)
}

func TestConformanceWhereImagesAreUploaded(t *testing.T) {
	t.Parallel()
	targettest.Run(t, harness(sharedDaemon(t), true))
}
