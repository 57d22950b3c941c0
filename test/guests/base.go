package guests

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A base is a Debian installation without the files of a guest.
type base struct{ packages []string }

// suite is the release of Debian.
const suite = "bookworm"

// commonPackages are the packages of all guests.
func commonPackages() []string {
	return strings.Fields("systemd-sysv udev dbus linux-image-cloud-amd64 ifupdown iproute2 netbase kmod e2fsprogs")
}

// initramfsBase is the base of the guests with initramfs-tools.
func initramfsBase() base {
	return base{append(commonPackages(), "initramfs-tools", "lvm2", "xfsprogs", "btrfs-progs", "network-manager")}
}

// dracutBase is the base of the guest with dracut, which boots with Secure Boot.
func dracutBase() base {
	return base{append(commonPackages(), "dracut", "shim-signed", "grub-efi-amd64-signed", "qemu-guest-agent")}
}

// mmdebstrapArgs returns the arguments of mmdebstrap. Documentation and translations are excluded.
func (b base) mmdebstrapArgs() []string {
	args := []string{"--variant=minbase", "--include=" + strings.Join(b.packages, ","), `--aptopt=APT::Install-Recommends "false"`}
	for _, path := range []string{"man", "locale", "doc"} {
		args = append(args, "--dpkgopt=path-exclude=/usr/share/"+path+"/*")
	}
	return append(args, suite)
}

// archivePath returns the path of the archive in dir. It depends on the set of packages.
func (b base) archivePath(dir string) string {
	sum := sha256.Sum256([]byte(strings.Join(b.mmdebstrapArgs(), "\n")))
	return filepath.Join(dir, fmt.Sprintf("base-%x.tar", sum[:6]))
}

// fetchArchive creates the archive if it is missing. It takes a minute or two, and downloads 150 MB
// from Debian's mirror.
func (b base) fetchArchive(ctx context.Context, dir string) error {
	path := b.archivePath(dir)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	new := path + ".new"
	defer os.Remove(new)
	if err := runTool(ctx, "", "mmdebstrap", append(b.mmdebstrapArgs(), "--format=tar", new)...); err != nil {
		return err
	}
	return os.Rename(new, path)
}
