//go:build slow

package dir

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/test/boot"
	tinyguest "github.com/decamp/decamp/test/guest"
)

// A real libvirt, started by hand, takes what Domain writes and boots it. It needs root
// and: scripts/setup.sh slow.
func TestLibvirtTakesEveryDomain(t *testing.T) {
	folder := t.TempDir()
	for name, vm := range domains() {
		if vm.VTPM {
			continue // libvirt asks for swtpm already when it defines one
		}
		xml, _, err := Domain(definition(vm), DomainOptions{Type: "qemu"})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name+".xml"), []byte(xml), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	defined := 0
	for line := range libvirt(t, folder) {
		if strings.HasPrefix(line, "DEFINED ") {
			defined++
		}
	}
	if want := len(domains()) - 1; defined != want {
		t.Errorf("libvirt defined %d of %d domains", defined, want)
	}
}

// A guest without fallback loader shows that libvirt starts it with the variables beside it.
func TestLibvirtBootsPublishedVMs(t *testing.T) {
	tests := []struct {
		name   string
		vm     *inventory.VM
		guest  tinyguest.Name
		format targets.Format
		driver string
	}{
		{"bios", biosVM(), tinyguest.NoVirtio, targets.Raw, "vmw_pvscsi"},
		{"efi", efiVM(), tinyguest.UEFI, targets.QCOW2, "virtio_scsi"},
		{"efi by its boot entry", efiVM(), tinyguest.Entry, targets.Raw, "virtio_scsi"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newTarget(t, Options{Format: tt.format})
			if err := os.Chmod(filepath.Dir(d.root), 0o755); err != nil { // QEMU runs as a user of its own
				t.Fatal(err)
			}
			folder := publishGuest(t, d, tt.vm, tinyguest.Image(t, tt.guest))
			for line := range libvirt(t, folder, filepath.Join(folder, "domain.xml")) {
				m, ok, err := boot.ParseMarker(line)
				if !ok {
					continue
				}
				if err != nil || m.Driver != tt.driver || m.UUID != tt.vm.UUID || len(m.Cards) != 1 || m.Cards[0].MAC != tt.vm.NICs[0].MAC {
					t.Errorf("the guest sees %+v, err %v", m, err)
				}
				return
			}
			t.Error("no marker")
		})
	}
}

// libvirt runs testdata/libvirt.sh in namespaces of its own, ended with the loop over
// its lines.
func libvirt(t *testing.T, args ...string) func(yield func(string) bool) {
	t.Helper()
	requires(t, "unshare", "libvirtd", "virtlogd", "virsh", "qemu-system-x86_64")
	if os.Getuid() != 0 {
		t.Skip("a libvirt of its own needs root")
	}
	return func(yield func(string) bool) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		script := []string{"--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "testdata/libvirt.sh"}
		cmd := exec.CommandContext(ctx, "unshare", append(script, args...)...)
		var complaints strings.Builder
		cmd.Stderr = &complaints
		cmd.WaitDelay = 10 * time.Second
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stopped := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if stopped = !yield(lines.Text()); stopped {
				cancel()
				break
			}
		}
		if err := cmd.Wait(); err != nil && !stopped {
			t.Errorf("libvirt.sh: %v: %s", err, complaints.String())
		}
	}
}
