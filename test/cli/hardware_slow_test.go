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

// A guest that has only drivers for VMware hardware is converted to virtio and boots before publication. The published VM
// boots, too: it finds its root by UUID, and its network card has the MAC address.
func TestConvertedGuestBootsFromVirtio(t *testing.T) {
	t.Parallel()
	r := newVMwareOnlyRig(t)
	r.migrate("web01", "--hardware", "virtio", "--trial", "--expect", bootMarker).wantExit(0).wantOutput("converted: /boot/", "drivers appended", "trial boot: it boots, after", bootMarker)
	folder := r.checkConverted("web01")
	m, err := boot.Domain(t.Context(), filepath.Join(folder, "domain.xml"), boot.Options{Deadline: 6 * time.Minute})
	must(t, err)
	card := boot.Card{Name: "eth0", MAC: "00:50:56:ab:cd:01", Driver: "virtio_net"}
	if m.Driver != "virtio_scsi" || m.Boots != 1 || len(m.Cards) != 1 || m.Cards[0] != card {
		t.Errorf("the guest sees %+v", m)
	}
}

// The same guest with virtio hardware but without conversion stops in its initramfs. decamp trial reports that.
func TestUnconvertedGuestStopsInInitramfs(t *testing.T) {
	t.Parallel()
	r := newVMwareOnlyRig(t)
	r.migrate("web01").wantExit(0)
	path := filepath.Join(r.vmsDir(), "web01", "domain.xml")
	domain, err := os.ReadFile(path)
	must(t, err)
	virtio := strings.NewReplacer("vmpvscsi", "virtio-scsi", "vmxnet3", "virtio").Replace(string(domain))
	must(t, os.WriteFile(path, []byte(virtio), 0o600))
	r.run("trial", filepath.Join(r.vmsDir(), "web01"), "--accel", "tcg").wantExit(7).wantOutput("initramfs", "/dev/sda1 does not exist", "convert it")
}

// A plan with hardware: virtio and trial: true converts its VM and boots it before publication.
func TestPlanConvertsAndTriesGuests(t *testing.T) {
	t.Parallel()
	r := newVMwareOnlyRig(t)
	path := r.writeFile("plan.yaml", "version: 1\nname: p\nsource: {url: "+r.url()+", fingerprint: \""+r.lab.Fingerprint()+"\", credentials: {file: password}}\ndefaults: {to: [dir:"+r.vmsDir()+"], hardware: virtio, trial: true, expect: "+bootMarker+"}\nvms: [{vm: web01}]\n")
	r.run("plan", "run", path).wantExit(0)
	record, err := dir.ReadRecord(filepath.Join(r.vmsDir(), "web01"))
	must(t, err)
	if record.Hardware != targets.Virtio || len(record.Converted.Changes) == 0 {
		t.Errorf("recorded %q, %+v", record.Hardware, record.Converted)
	}
	logs, err := filepath.Glob(filepath.Join(r.stateDir(), "runs", "web01-*", "trial", "serial.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("got the serial logs %v, %v, want one", logs, err)
	}
	if text, err := os.ReadFile(logs[0]); err != nil || !strings.Contains(string(text), "virtio_scsi") {
		t.Errorf("the guest did not use virtio_scsi: %v", err)
	}
}
