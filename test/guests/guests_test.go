//go:build guests

package guests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/test/boot"
)

// bootTimeout is the time limit of a boot, which takes one to two minutes on an idle machine with two cores.
const bootTimeout = 20 * time.Minute

// decamp migrates real Debian guests from VMware to virtio hardware, with a trial boot. The published VM boots with its
// UUID, from a root that is found by UUID, and has its static address on the card with its MAC address. The same guest
// without conversion stops in its initramfs, and the trial reports that.
func TestDebianBootsOnVirtioAfterMigration(t *testing.T) {
	must(t, Build(t.Context(), repo))
	for _, name := range Names() {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, name)
			migration := r.migrate()
			t.Logf("%s: %s", name, migration.durations())
			if !migration.hasNote("guest: ", "will boot with virtio-scsi after linux-append", Card) || !migration.hasNote("trial boot: it boots") {
				t.Errorf("notes %q", migration.notes)
			}
			r.checkAgent(migration)
			r.checkRecord()
			r.checkFileSystems()
			if _, errs, code := r.run("verify", r.publishedDir()); code != 0 {
				t.Errorf("decamp verify: %s", errs)
			}
			r.checkBoot()
			r.checkUnconverted()
		})
	}
}

// checkAgent checks the report of the guest agent in the trial, which contains the address of the card. A guest without
// an agent has no report.
func (r *rig) checkAgent(migration migrationLog) {
	r.t.Helper()
	facts := Look(r.name)
	address, _, _ := strings.Cut(facts.Address, "/")
	if reported := migration.hasNote("trial boot: it boots", "its agent answers: Debian GNU/Linux 12 (bookworm), kernel 6.1.", "host name debian", Card+" "+address); reported != facts.Agent {
		r.t.Errorf("report of the guest agent printed: %v, want %v: %q", reported, facts.Agent, migration.notes)
	}
	domain, err := os.ReadFile(filepath.Join(r.publishedDir(), "domain.xml"))
	must(r.t, err)
	if has := strings.Contains(string(domain), "org.qemu.guest_agent.0"); has != facts.Agent {
		r.t.Errorf("the domain has a channel for the agent: %v, want %v", has, facts.Agent)
	}
	if r.hasWarning("address-missing") {
		r.t.Errorf("an address is missing")
	}
}

// hasWarning reports whether the record has a warning.
func (r *rig) hasWarning(code string) bool {
	r.t.Helper()
	record, err := dir.ReadRecord(r.publishedDir())
	must(r.t, err)
	return slices.ContainsFunc(record.Warnings, func(w inventory.Warning) bool { return w.Code == code })
}

// checkRecord checks the changes of the conversion in vm.json.
func (r *rig) checkRecord() {
	r.t.Helper()
	record, err := dir.ReadRecord(r.publishedDir())
	must(r.t, err)
	if record.Hardware != targets.Virtio || record.Converted == nil {
		r.t.Fatalf("recorded %q, %+v", record.Hardware, record.Converted)
	}
	var changed []string
	for _, c := range record.Converted.Changes {
		changed = append(changed, c.Path+": "+c.Reason)
	}
	all := strings.Join(changed, "\n")
	for _, want := range []string{"boot/initrd.img-", "drivers appended: ", "virtio_scsi", "etc/systemd/network/10-decamp-" + Card + ".link", "etc/fstab: "} {
		if !strings.Contains(all, want) {
			r.t.Errorf("the changes do not contain %q:\n%s", want, all)
		}
	}
	for _, n := range record.Converted.Notes {
		r.t.Errorf("unexpected note: %s", n)
	}
}

// checkBoot boots the published VM and checks the report of the guest.
func (r *rig) checkBoot() {
	r.t.Helper()
	log := filepath.Join(r.dir, "published.log")
	began := time.Now()
	m, err := boot.Domain(r.t.Context(), filepath.Join(r.publishedDir(), "domain.xml"), boot.Options{Deadline: bootTimeout, Log: log})
	if err != nil {
		r.t.Fatalf("%v\n%s", err, lastBytes(log))
	}
	r.t.Logf("%s: the published VM reported after %.0f s, with an uptime of %.0f s: %+v", r.name, time.Since(began).Seconds(), m.Uptime.Seconds(), m)
	facts := Look(r.name)
	card := boot.Card{Name: Card, MAC: mac, Driver: "virtio_net"}
	if m.Driver != "virtio_scsi" || len(m.Cards) != 1 || m.Cards[0] != card || m.UUID != smbios || m.Boots != 1 {
		r.t.Errorf("the guest reports disk driver %s, cards %+v, UUID %s, boot %d", m.Driver, m.Cards, m.UUID, m.Boots)
	}
	if want := wantRoot(facts); m.By != want {
		r.t.Errorf("the root is %s, want %s", m.By, want)
	}
	if want := (boot.IP{Address: facts.Address, Name: Card, MAC: mac}); len(m.IPs) != 1 || m.IPs[0] != want {
		r.t.Errorf("the addresses are %+v, want %+v", m.IPs, want)
	}
	if want := map[bool]string{true: "efi", false: "bios"}[facts.EFI]; m.Firmware != want {
		r.t.Errorf("the firmware is %s, want %s", m.Firmware, want)
	}
	if text, err := os.ReadFile(log); facts.EFI && (err != nil || !strings.Contains(string(text), "Secure boot enabled")) {
		r.t.Errorf("the guest booted without Secure Boot: %v", err)
	}
}

// wantRoot returns the expected root parameter of the kernel: the UUID of a partition, or the unchanged name of an LVM
// volume.
func wantRoot(f Facts) string {
	if strings.HasPrefix(f.SysRoot, "/dev/mapper/") {
		return f.SysRoot
	}
	return "UUID=" + f.UUID
}

// lastBytes returns the end of a file.
func lastBytes(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-6000):])
}

// checkFileSystems checks the converted file systems with e2fsck, xfs_repair or btrfs check.
func (r *rig) checkFileSystems() {
	r.t.Helper()
	images, err := filepath.Glob(filepath.Join(r.publishedDir(), "*.raw"))
	if err != nil || len(images) != 1 {
		r.t.Fatalf("images %q, %v", images, err)
	}
	checkers := map[string][]string{"ext4": {"e2fsck", "-fn"}, "xfs": {"xfs_repair", "-n"}, "btrfs": {"btrfs", "check"}}
	for _, fs := range Look(r.name).FileSystems {
		part := filepath.Join(r.dir, "part")
		b := builder{ctx: r.t.Context()}
		must(r.t, b.createFile(part, fs.Len))
		must(r.t, copyFileSystem(r, images[0], part, fs))
		if err := runTool(r.t.Context(), "", checkers[fs.Kind][0], append(checkers[fs.Kind][1:], part)...); err != nil {
			r.t.Errorf("check of %s after the conversion: %v", fs.Kind, err)
		}
		must(r.t, os.Remove(part))
	}
}

func copyFileSystem(r *rig, image, to string, fs FileSystem) error {
	return exec.CommandContext(r.t.Context(), "dd", "if="+image, "of="+to, "bs=1M", "iflag=skip_bytes,count_bytes", "conv=sparse,notrunc", "status=none",
		"skip="+fmt.Sprint(fs.Off), "count="+fmt.Sprint(fs.Len)).Run()
}

// checkUnconverted boots the source disk with the hardware of the converted guest. It stops in the initramfs. The trial
// reports that, with the missing device and the remedy.
func (r *rig) checkUnconverted() {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.publishedDir(), "domain.xml"))
	must(r.t, err)
	images, err := filepath.Glob(filepath.Join(r.publishedDir(), "*.raw"))
	must(r.t, err)
	source, err := filepath.Abs(File(repo, r.name))
	must(r.t, err)
	domain := filepath.Join(r.dir, "unconverted.xml")
	must(r.t, os.WriteFile(domain, []byte(strings.ReplaceAll(string(text), images[0], source)), 0o600))
	out, errs, code := r.run("trial", domain, "--accel", "tcg", "--json", "--keep", filepath.Join(r.dir, "unconverted"))
	var report testboot.Report
	must(r.t, json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &report))
	r.t.Logf("%s without conversion: %s after %.0f s: %s", r.name, report.Verdict, report.Elapsed.Seconds(), report.Reason)
	if code != 7 || report.Verdict != testboot.Initramfs || !strings.Contains(report.Reason, Look(r.name).SysRoot+" does not exist") || !strings.Contains(report.Remedy, "convert it") {
		r.t.Errorf("exit code %d, %+v, %s\n%s", code, report, errs, lastBytes(report.Serial))
	}
}
