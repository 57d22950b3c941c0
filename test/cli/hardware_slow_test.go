//go:build slow

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/test/boot"
)

// A guest that has drivers for VMware's hardware only is converted to virtio. It boots before publication, and the
// published VM is the verified one, and boots again: its root is found by UUID, its card has the MAC.
func TestConvertedGuestBootsFromVirtio(t *testing.T) {
	t.Parallel()
	r := vmwareOnly(t)
	r.migrate("web01", "--hardware", "virtio", "--trial", "--expect", up).ends(0).says("converted: /boot/", "drivers appended", "trial boot: it boots, after", up)
	folder := r.converted("web01")
	m, err := boot.Domain(t.Context(), filepath.Join(folder, "domain.xml"), boot.Options{Deadline: 6 * time.Minute})
	must(t, err)
	card := boot.Card{Name: "eth0", MAC: "00:50:56:ab:cd:01", Driver: "virtio_net"}
	if m.Driver != "virtio_scsi" || m.Boots != 1 || len(m.Cards) != 1 || m.Cards[0] != card {
		t.Errorf("the guest sees %+v", m)
	}
}

// The same guest with the same hardware, not converted, is named: it stops in its initramfs.
func TestGuestThatIsNotConvertedStopsInItsInitramfs(t *testing.T) {
	t.Parallel()
	r := vmwareOnly(t)
	r.migrate("web01").ends(0)
	path := filepath.Join(r.vms(), "web01", "domain.xml")
	domain, err := os.ReadFile(path)
	must(t, err)
	virtio := strings.NewReplacer("vmpvscsi", "virtio-scsi", "vmxnet3", "virtio").Replace(string(domain))
	must(t, os.WriteFile(path, []byte(virtio), 0o600))
	r.run("trial", filepath.Join(r.vms(), "web01"), "--accel", "tcg").ends(7).says("initramfs", "/dev/sda1 does not exist", "convert it")
}

// A plan with conversion and trial converts and boots all of its VMs.
func TestPlanConvertsAndTriesGuests(t *testing.T) {
	t.Parallel()
	r := vmwareOnly(t)
	path := r.write("plan.yaml", "version: 1\nname: p\nsource: {url: "+r.url()+", fingerprint: \""+r.lab.Fingerprint()+"\", credentials: {file: password}}\ndefaults: {to: [dir:"+r.vms()+"], hardware: virtio, trial: true, expect: "+up+"}\nvms: [{vm: web01}]\n")
	r.run("plan", "run", path).ends(0)
	record, err := dir.ReadRecord(filepath.Join(r.vms(), "web01"))
	must(t, err)
	if record.Hardware != targets.Virtio || len(record.Converted.Changes) == 0 {
		t.Errorf("recorded %q, %+v", record.Hardware, record.Converted)
	}
	logs, err := filepath.Glob(filepath.Join(r.state(), "runs", "web01-*", "trial", "serial.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("trials were kept in %v: %v", logs, err)
	}
	if text, err := os.ReadFile(logs[0]); err != nil || !strings.Contains(string(text), "virtio_scsi") {
		t.Errorf("it booted otherwise: %v", err)
	}
}
