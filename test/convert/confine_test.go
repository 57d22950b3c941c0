package convert

import (
	"os"
	"testing"

	"github.com/decamp/decamp/internal/confine/confinetest"
	"github.com/decamp/decamp/internal/guest"
)

// The QEMU of an appliance that has mounted a guest's file system has no rights and no files. The test
// does not run beside others, whose appliances would be taken for this one.
func TestApplianceIsConfined(t *testing.T) {
	disks := layered(t, diskOf(t, xfsOf(t, linux("/dev/sda1"))))
	_, m := mounted(t, disks, guest.XFS)
	found := confinetest.Children(t, os.Getpid())
	if len(found) != 1 {
		t.Fatalf("QEMU runs as %v", found)
	}
	confinetest.Check(t, found[0], uint32(os.Geteuid()), nil, nil)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if found := confinetest.Children(t, os.Getpid()); len(found) > 0 {
		t.Errorf("QEMU still runs as %v", found)
	}
}
