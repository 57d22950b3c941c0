package convert

import (
	"os"
	"testing"

	"github.com/decamp/decamp/internal/confine/confinetest"
	"github.com/decamp/decamp/internal/guest"
)

// The QEMU process of an appliance that has mounted a guest's file system has no privileges and no files. The test does
// not run in parallel, because it would find the appliances of other tests.
func TestApplianceIsConfined(t *testing.T) {
	disks := openDisks(t, newDisk(t, newXFS(t, newDebian("/dev/sda1"))))
	_, m := mountDisk(t, disks, guest.XFS)
	found := confinetest.Children(t, os.Getpid())
	if len(found) != 1 {
		t.Fatalf("child processes %v, want one QEMU", found)
	}
	confinetest.Check(t, found[0], uint32(os.Geteuid()), nil, nil)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if found := confinetest.Children(t, os.Getpid()); len(found) > 0 {
		t.Errorf("QEMU still runs: processes %v", found)
	}
}
