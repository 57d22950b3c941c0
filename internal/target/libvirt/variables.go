package libvirt

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/target/staged"
)

var _ staged.Carrier = (*Place)(nil)

// CarriesEFI reports whether a VM's boot entries are taken: only by a libvirt of this machine. They are in variables
// that are made for one build of the firmware, and which another machine has is not known here.
func (p *Place) CarriesEFI() bool { return p.at.transport == "unix" }

// variables brings the file that libvirt makes the variables of the VM's EFI firmware of, at its first start,
// into the pool, and returns where it is there; "" if it has none. The stage may be cleared then.
func (j *job) variables(ctx context.Context) (path string, err error) {
	x, err := parseDomain(j.Domain)
	if err != nil {
		return "", err
	}
	if x.OS == nil || x.OS.NVRam == nil || x.OS.NVRam.Template == "" {
		return "", nil
	}
	src, err := rawfile.OpenSource(x.OS.NVRam.Template, rawfile.SourceOptions{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	into := j.pools[0]
	if len(j.into) > 0 {
		into = j.into[0]
	}
	v, err := j.fill(ctx, src, into, j.place.volumePrefix(j.VM)+"-vars.fd")
	if err != nil {
		return "", fmt.Errorf("upload the firmware's variables: %w", err)
	}
	return j.client.VolumePath(ctx, v)
}
