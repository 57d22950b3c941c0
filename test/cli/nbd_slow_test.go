//go:build slow

package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/boot"
	tinyguest "github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/program"
)

// A Linux guest boots from its disk on the host and reads only a part of it.
func TestLinuxBootsOverNBD(t *testing.T) {
	t.Parallel()
	program.Requires(t, "qemu-system-x86_64")
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", ChangeTracking: true, Disks: []lab.Disk{{File: tinyguest.Image(t, tinyguest.BIOS)}}}}}).withFingerprint()
	s := r.serveNBD()
	domain, err := os.ReadFile("../boot/testdata/bios-pvscsi.xml")
	must(t, err)
	m, err := boot.Domain(t.Context(), r.writeFile("domain.xml", strings.Replace(string(domain), "@IMAGE@", s.URI, 1)), boot.Options{})
	must(t, err)
	if m.Firmware != "bios" || m.Driver != "vmw_pvscsi" {
		t.Errorf("the guest reports %+v", m)
	}
	if sent, read := s.stop(); sent == 0 || read > tinyguest.Size/2 {
		t.Errorf("the boot read %d bytes of a disk of %d", read, int64(tinyguest.Size))
	}
}
