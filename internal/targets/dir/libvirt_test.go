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

// A real libvirtd accepts and boots the domains of Domain. The test requires root and scripts/setup.sh slow.
func TestLibvirtDefinesEveryDomain(t *testing.T) {
	folder := t.TempDir()
	for name, vm := range domainVMs() {
		if vm.VTPM {
			continue // libvirt requires swtpm to define a TPM
		}
		xml, _, err := Domain(newDefinition(vm), DomainOptions{Type: "qemu"})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name+".xml"), []byte(xml), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	defined := 0
	for line := range runLibvirt(t, folder) {
		if strings.HasPrefix(line, "DEFINED ") {
			defined++
		}
	}
	if want := len(domainVMs()) - 1; defined != want {
		t.Errorf("libvirt defines %d of %d domains", defined, want)
	}
}

// A guest without a fallback loader boots only if libvirt starts it with the variables file of its folder.
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
			if err := os.Chmod(filepath.Dir(d.root), 0o755); err != nil { // QEMU runs as another user
				t.Fatal(err)
			}
			folder := publishGuest(t, d, tt.vm, tinyguest.Image(t, tt.guest))
			for line := range runLibvirt(t, folder, filepath.Join(folder, "domain.xml")) {
				m, ok, err := boot.ParseMarker(line)
				if !ok {
					continue
				}
				if err != nil || m.Driver != tt.driver || m.UUID != tt.vm.UUID || len(m.Cards) != 1 || m.Cards[0].MAC != tt.vm.NICs[0].MAC {
					t.Errorf("the guest sees %+v, err %v", m, err)
				}
				return
			}
			t.Error("the guest prints no marker")
		})
	}
}

// runLibvirt runs testdata/libvirt.sh in new namespaces and yields its lines. The script ends with the loop.
func runLibvirt(t *testing.T, args ...string) func(yield func(string) bool) {
	t.Helper()
	requireTools(t, "unshare", "libvirtd", "virtlogd", "virsh", "qemu-system-x86_64")
	if os.Getuid() != 0 {
		t.Skip("libvirtd in new namespaces requires root")
	}
	return func(yield func(string) bool) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		script := []string{"--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "testdata/libvirt.sh"}
		cmd := exec.CommandContext(ctx, "unshare", append(script, args...)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
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
			t.Errorf("libvirt.sh: %v: %s", err, stderr.String())
		}
	}
}
