package guests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A builder builds one image in a temporary folder.
type builder struct {
	ctx     context.Context // cancels the programs that it runs
	dir     string          // temporary folder
	archive string          // path of the base's archive
	name    Name            // guest to build
	variant variant         // properties of the guest
	release string          // release of the kernel, set once it is unpacked
}

// imagePath returns the file of the image.
func (b builder) imagePath() string { return filepath.Join(b.dir, "image") }

// pathIn returns a path in the temporary folder.
func (b builder) pathIn(path ...string) string {
	return filepath.Join(append([]string{b.dir}, path...)...)
}

// rootPath returns the folder with the files of the guest.
func (b builder) rootPath() string { return b.pathIn("root") }

// build runs all steps from the base to a bootable disk.
func (b builder) build() error {
	if err := os.Mkdir(b.rootPath(), 0o755); err != nil {
		return err
	}
	if err := runTool(b.ctx, "", "tar", "-C", b.rootPath(), "--numeric-owner", "--xattrs", "--exclude=./dev/*", "-xpf", b.archive); err != nil {
		return err
	}
	kernels, err := filepath.Glob(filepath.Join(b.rootPath(), "boot", "vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return fmt.Errorf("the base has %d kernels", len(kernels))
	}
	b.release = strings.TrimPrefix(filepath.Base(kernels[0]), "vmlinuz-")
	for _, step := range []func() error{b.writeConfig, b.switchUnits, b.makeInitramfs, b.writePartitions, func() error { return b.variant.lay(b) }} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// writeConfig writes the files that differ between guests. The machine ID is set, because systemd
// enables all installed units at a boot without one.
func (b builder) writeConfig() error {
	marker, err := sources.ReadFile("files/marker.sh")
	if err != nil {
		return err
	}
	unit, err := sources.ReadFile("files/marker.service")
	if err != nil {
		return err
	}
	text := map[string]string{
		"etc/fstab":                         b.variant.fstab,
		"etc/hostname":                      "debian\n",
		"etc/machine-id":                    "5d3b1c0e7a414f0b9c552f6f0c1d8a0" + fmt.Sprint(len(b.name)) + "\n",
		"etc/default/grub":                  "GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\nGRUB_CMDLINE_LINUX_DEFAULT=\"\"\nGRUB_CMDLINE_LINUX=\"console=ttyS0\"\n",
		"boot/grub/grub.cfg":                b.grubConfig(),
		"usr/local/sbin/decamp-marker":      string(marker),
		"etc/systemd/system/marker.service": string(unit),
		"var/lib/boots":                     "0\n",

		// Emulation on a busy machine is slow.
		"etc/systemd/system.conf.d/slow.conf": "[Manager]\nDefaultTimeoutStartSec=10min\n",
	}
	for path, content := range b.variant.network {
		text[path] = content
	}
	for path, content := range text {
		if err := b.writeGuestFile(path, content); err != nil {
			return err
		}
	}
	return nil
}

// writeGuestFile writes a file of the guest. Its mode depends on the path: scripts are executable, and
// NetworkManager's files private.
func (b builder) writeGuestFile(path, content string) error {
	file, mode := filepath.Join(b.rootPath(), path), os.FileMode(0o644)
	switch {
	case strings.HasPrefix(path, "usr/local/sbin/"): // scripts
		mode = 0o755
	case strings.HasSuffix(path, ".nmconnection"):
		mode = 0o600 // NetworkManager requires this mode
	}
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), mode), os.Chmod(file, mode))
}

// switchUnits enables the units of the marker and the variant, and masks those that must not start.
func (b builder) switchUnits() error {
	if err := b.runInGuest("systemctl", append([]string{"enable", "marker.service"}, b.variant.enabled...)...); err != nil {
		return err
	}
	if len(b.variant.masked) == 0 { // systemctl mask requires a name
		return nil
	}
	return b.runInGuest("systemctl", append([]string{"mask"}, b.variant.masked...)...)
}

// makeInitramfs creates an initramfs with the drivers of VMware's hardware only, as an installation on
// a VMware VM does.
func (b builder) makeInitramfs() error {
	initrd := "/boot/initrd.img-" + b.release
	if err := os.Remove(filepath.Join(b.rootPath(), initrd)); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(b.rootPath(), "usr/sbin/update-initramfs")); err != nil {
		return b.runInGuest("dracut", "--force", "--hostonly", "--no-hostonly-default-device", "--no-hostonly-cmdline", "--no-early-microcode",
			"--add-drivers", b.variant.modules, "--omit-drivers", "virtio virtio_ring virtio_pci virtio_blk virtio_scsi virtio_net", initrd, b.release)
	}
	for path, content := range map[string]string{
		"etc/initramfs-tools/modules":                   "vmw_pvscsi\nsd_mod\nvmxnet3\ncrc32c_generic\n" + b.variant.modules + "\n",
		"etc/initramfs-tools/conf.d/driver-policy.conf": "MODULES=list\n",
		"etc/initramfs-tools/conf.d/resume":             "RESUME=none\n",
	} {
		if err := b.writeGuestFile(path, content); err != nil {
			return err
		}
	}
	return b.runInGuest("update-initramfs", "-c", "-k", b.release)
}

// runInGuest runs a program of the guest with its root directory, and with /proc and /dev mounted
// during the run.
func (b builder) runInGuest(name string, args ...string) error {
	const script = `mount -t proc proc "$0/proc"; mount --bind /dev "$0/dev"; exec chroot "$0" "$@"`
	return runTool(b.ctx, "", "unshare", append([]string{"--mount", "--propagation", "private", "sh", "-ec", script, b.rootPath(), name}, args...)...)
}

// grubConfig boots without a menu. no_timer_check: an emulated timer is late on a busy machine.
// rootdelay: a root device may take a minute to appear there.
func (b builder) grubConfig() string {
	at := strings.TrimSuffix(b.variant.grub, "/grub")
	arguments := strings.TrimSpace("root=" + b.variant.root + " ro " + b.variant.arguments + " console=ttyS0 no_timer_check rootdelay=60")
	return "set timeout=0\nmenuentry debian {\n\tlinux " + at + "/vmlinuz-" + b.release + " " + arguments +
		"\n\tinitrd " + at + "/initrd.img-" + b.release + "\n}\n"
}
