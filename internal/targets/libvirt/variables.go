package libvirt

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/platform"
)

var _ platform.Carrier = (*Platform)(nil)

// CarriesEFI reports whether EFI variables can be carried over, which requires a libvirt of this host.
// The variables
// are for one build of the firmware, and the build on another host is not known.
func (p *Platform) CarriesEFI() bool { return p.at.transport == "unix" }

// hasVariables reports whether a domain names a template for its EFI variables.
func hasVariables(x *libvirtxml.Domain) bool {
	return x.OS != nil && x.OS.NVRam != nil && x.OS.NVRam.Template != ""
}

// filePool returns the first of the VM's pools whose volumes are files, or false if all pools have block devices. A
// block device is
// unsuitable for EFI variables, because its size is rounded up.
func (j *job) filePool() (pool, bool) {
	for _, in := range slices.Concat(j.into, j.pools) {
		if !in.block {
			return in, true
		}
	}
	return pool{}, false
}

// warnNoVariables returns a warning if the domain has EFI variables and no pool can store them.
func (j *job) warnNoVariables(x *libvirtxml.Domain) []inventory.Warning {
	if _, ok := j.filePool(); ok || !hasVariables(x) {
		return nil
	}
	return []inventory.Warning{{
		Code: "efi-variables", Text: "the boot entries in the EFI variables are not migrated, because no pool of the VM has files: the guest boots from the fallback path",
		Remedy: `make sure the guest has \EFI\BOOT\BOOTX64.EFI (grub-install --removable), or name a pool with files as pool=NAME and assign the disks to this pool in the map of storages`,
	}}
}

// uploadVariables uploads the template for the VM's EFI variables to a pool, and returns its path on
// libvirt's host,
// or "" if it does not exist. libvirt copies the template at the first start of the domain.
func (j *job) uploadVariables(ctx context.Context) (path string, err error) {
	x, err := parseDomain(j.Domain)
	if err != nil {
		return "", err
	}
	into, ok := j.filePool()
	if !ok || !hasVariables(x) {
		return "", nil
	}
	src, err := rawfile.OpenSource(x.OS.NVRam.Template, rawfile.SourceOptions{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	v, err := j.fillVolume(ctx, src, into, volumePrefix(j.maps, j.VM)+"-vars.fd")
	if err != nil {
		return "", fmt.Errorf("upload the firmware's variables: %w", err)
	}
	return j.client.VolumePath(ctx, v)
}
