package libvirt

import (
	"testing"

	"github.com/decamp/decamp/internal/targets/targettest"
)

func TestConformanceWhereImagesAreLinked(t *testing.T) {
	targettest.Run(t, harness(sharedDaemon(t), false))
}

func TestConformanceWhereImagesAreUploaded(t *testing.T) {
	targettest.Run(t, harness(sharedDaemon(t), true))
}
