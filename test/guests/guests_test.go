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

// deadline is for a boot, which takes one to two minutes of an emulated machine that has two cores for itself.
const deadline = 20 * time.Minute

// A Debian as VMware has it goes from the host to KVM: changed for virtio, tried, published. What
// is published boots with its identity, from a root that is named by UUID, and has its fixed address
// on the card with its MAC. The same guest, not changed, stops in its initramfs, and that is said.
func TestDebianArrivesOnVirtio(t *testing.T) {
	must(t, Build(t.Context(), repo))
	for _, name := range Names() {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, name)
			told := r.migrate()
			t.Logf("%s: %s", name, told.figures())
			if !told.says("guest: ", "will boot with virtio-scsi after linux-append", Card) || !told.says("trial boot: it boots") {
				t.Errorf("it was told %q", told.notes)
			}
			r.checkAgent(told)
			r.checkRecord()
			r.checkFileSystems()
			if _, errs, code := r.run("verify", r.published()); code != 0 {
				t.Errorf("decamp verify: %s", errs)
			}
			r.checkBoot()
			r.checkUnconverted()
		})
	}
}

// checkAgent looks at what the guest's agent told in the trial: the address is where it belongs. A guest
// that has none is up all the same.
func (r *rig) checkAgent(told telling) {
	r.t.Helper()
	facts := Look(r.name)
	address, _, _ := strings.Cut(facts.Address, "/")
	if says := told.says("trial boot: it boots", "its agent answers: Debian GNU/Linux 12 (bookworm), kernel 6.1.", "host name debian", Card+" "+address); says != facts.Agent {
		r.t.Errorf("the agent's answer is told: %v, want %v: %q", says, facts.Agent, told.notes)
	}
	domain, err := os.ReadFile(filepath.Join(r.published(), "domain.xml"))
	must(r.t, err)
	if has := strings.Contains(string(domain), "org.qemu.guest_agent.0"); has != facts.Agent {
		r.t.Errorf("it has the agent's channel: %v", has)
	}
	if r.warned("address-missing") {
		r.t.Errorf("an address is missing")
	}
}

// warned reports whether the record has a warning.
func (r *rig) warned(code string) bool {
	r.t.Helper()
	record, err := dir.ReadRecord(r.published())
	must(r.t, err)
	return slices.ContainsFunc(record.Warnings, func(w inventory.Warning) bool { return w.Code == code })
}

// checkRecord asks vm.json what was changed.
func (r *rig) checkRecord() {
	r.t.Helper()
	record, err := dir.ReadRecord(r.published())
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
			r.t.Errorf("no change has %q:\n%s", want, all)
		}
	}
	for _, n := range record.Converted.Notes {
		r.t.Errorf("noted: %s", n)
	}
}

// checkBoot boots what was published, and asks the guest what it found.
func (r *rig) checkBoot() {
	r.t.Helper()
	log := filepath.Join(r.dir, "published.log")
	began := time.Now()
	m, err := boot.Domain(r.t.Context(), filepath.Join(r.published(), "domain.xml"), boot.Options{Deadline: deadline, Log: log})
	if err != nil {
		r.t.Fatalf("%v\n%s", err, tail(log))
	}
	r.t.Logf("%s: published, it says so after %.0f s, %.0f of them its own: %+v", r.name, time.Since(began).Seconds(), m.Uptime.Seconds(), m)
	facts := Look(r.name)
	card := boot.Card{Name: Card, MAC: mac, Driver: "virtio_net"}
	if m.Driver != "virtio_scsi" || len(m.Cards) != 1 || m.Cards[0] != card || m.UUID != smbios || m.Boots != 1 {
		r.t.Errorf("it has disk driver %s, cards %+v, UUID %s, boot %d", m.Driver, m.Cards, m.UUID, m.Boots)
	}
	if want := rootName(facts); m.By != want {
		r.t.Errorf("its root is %s, want %s", m.By, want)
	}
	if want := (boot.IP{Address: facts.Address, Name: Card, MAC: mac}); len(m.IPs) != 1 || m.IPs[0] != want {
		r.t.Errorf("its addresses are %+v, want %+v", m.IPs, want)
	}
	if want := map[bool]string{true: "efi", false: "bios"}[facts.EFI]; m.Firmware != want {
		r.t.Errorf("its firmware is %s, want %s", m.Firmware, want)
	}
	if text, err := os.ReadFile(log); facts.EFI && (err != nil || !strings.Contains(string(text), "Secure boot enabled")) {
		r.t.Errorf("it booted without Secure Boot: %v", err)
	}
}

// rootName is what the kernel is to be told: a partition's UUID, and of LVM the name, which stays.
func rootName(f Facts) string {
	if strings.HasPrefix(f.SysRoot, "/dev/mapper/") {
		return f.SysRoot
	}
	return "UUID=" + f.UUID
}

// tail is the end of a file.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-6000):])
}

// checkFileSystems has their own checkers look at what was written to.
func (r *rig) checkFileSystems() {
	r.t.Helper()
	images, err := filepath.Glob(filepath.Join(r.published(), "*.raw"))
	if err != nil || len(images) != 1 {
		r.t.Fatalf("images %q, %v", images, err)
	}
	checkers := map[string][]string{"ext4": {"e2fsck", "-fn"}, "xfs": {"xfs_repair", "-n"}, "btrfs": {"btrfs", "check"}}
	for _, fs := range Look(r.name).FileSystems {
		part := filepath.Join(r.dir, "part")
		b := builder{ctx: r.t.Context()}
		must(r.t, b.createFile(part, fs.Len))
		must(r.t, cut(r, images[0], part, fs))
		if err := runTool(r.t.Context(), "", checkers[fs.Kind][0], append(checkers[fs.Kind][1:], part)...); err != nil {
			r.t.Errorf("after the conversion: %v", err)
		}
		must(r.t, os.Remove(part))
	}
}

func cut(r *rig, image, to string, fs FileSystem) error {
	return exec.CommandContext(r.t.Context(), "dd", "if="+image, "of="+to, "bs=1M", "iflag=skip_bytes,count_bytes", "conv=sparse,notrunc", "status=none",
		"skip="+fmt.Sprint(fs.Off), "count="+fmt.Sprint(fs.Len)).Run()
}

// checkUnconverted boots the source's own disk with the hardware that the converted guest has. It
// stops in the initramfs, and the trial says so, what it looked for, and what would help.
func (r *rig) checkUnconverted() {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.published(), "domain.xml"))
	must(r.t, err)
	images, err := filepath.Glob(filepath.Join(r.published(), "*.raw"))
	must(r.t, err)
	source, err := filepath.Abs(File(repo, r.name))
	must(r.t, err)
	domain := filepath.Join(r.dir, "unconverted.xml")
	must(r.t, os.WriteFile(domain, []byte(strings.ReplaceAll(string(text), images[0], source)), 0o600))
	out, errs, code := r.run("trial", domain, "--accel", "tcg", "--json", "--keep", filepath.Join(r.dir, "unconverted"))
	var report testboot.Report
	must(r.t, json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &report))
	r.t.Logf("%s: not converted, it is %s after %.0f s: %s", r.name, report.Verdict, report.Elapsed.Seconds(), report.Reason)
	if code != 7 || report.Verdict != testboot.Initramfs || !strings.Contains(report.Reason, Look(r.name).SysRoot+" does not exist") || !strings.Contains(report.Remedy, "convert it") {
		r.t.Errorf("exit code %d, %+v, %s\n%s", code, report, errs, tail(report.Serial))
	}
}
