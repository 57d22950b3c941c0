//go:build slow

package nbdkit

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/boot"
	"github.com/decamp/decamp/test/guest"
)

// A guest boots from the export with few small reads at many offsets, as the appliance of virt-v2v does.
func TestGuestBootsFromExport(t *testing.T) {
	t.Parallel()
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", ChangeTracking: true, Disks: []lab.Disk{{File: guest.Image(t, guest.BIOS)}}}}})
	s := r.startServer(r.virtV2V(r.parameters())...)
	domain, err := os.ReadFile("../boot/testdata/bios-pvscsi.xml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := boot.Domain(t.Context(), r.writeFile("domain.xml", strings.Replace(string(domain), "@IMAGE@", r.uri(), 1)), boot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if m.Firmware != "bios" || m.Driver != "vmw_pvscsi" {
		t.Errorf("the guest reports %+v", m)
	}
	if read := r.lab.Stats().NFC.ReadBytes; read > guest.Size/2 {
		t.Errorf("the boot read %d bytes, want at most half of the %d of the disk", read, int64(guest.Size))
	}
	s.stopCleanly(syscall.SIGTERM)
}
