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

var _ platform.Carrier = (*Place)(nil)

// CarriesEFI reports whether a VM's boot entries are taken: only by a libvirt of this machine. They are in variables
// that are made for one build of the firmware, and which another machine has is not known here.
func (p *Place) CarriesEFI() bool { return p.at.transport == "unix" }

// hasVariables reports whether a domain names a file that its firmware's variables are made of.
func hasVariables(x *libvirtxml.Domain) bool {
	return x.OS != nil && x.OS.NVRam != nil && x.OS.NVRam.Template != ""
}

// filePool is the first of the VM's pools that has files, and false if none does: variables have a size, which a device
// rounds up.
func (j *job) filePool() (pool, bool) {
	for _, in := range slices.Concat(j.into, j.pools) {
		if !in.block {
			return in, true
		}
	}
	return pool{}, false
}

// leavesVariables warns of variables for which there is no place.
func (j *job) leavesVariables(x *libvirtxml.Domain) []inventory.Warning {
	if _, ok := j.filePool(); ok || !hasVariables(x) {
		return nil
	}
	return []inventory.Warning{{
		Code: "efi-variables", Text: "the boot entries in the EFI variables stay behind, as no pool of the VM has files: the guest boots from the fallback path",
		Remedy: `make sure the guest has \EFI\BOOT\BOOTX64.EFI (grub-install --removable), or name a pool of files as pool=NAME and send the disks to this one by the map of storages`,
	}}
}

// variables brings the file that libvirt makes the variables of the VM's EFI firmware of, at its first start,
// into the pool, and returns where it is there; "" if it has none. The stage may be cleared then.
func (j *job) variables(ctx context.Context) (path string, err error) {
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
	v, err := j.fill(ctx, src, into, volumePrefix(j.maps, j.VM)+"-vars.fd")
	if err != nil {
		return "", fmt.Errorf("upload the firmware's variables: %w", err)
	}
	return j.client.VolumePath(ctx, v)
}
