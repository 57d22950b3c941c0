package libvirt

import (
	"cmp"
	"slices"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/mapping"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/staged"
)

var _ staged.Outliner = (*Place)(nil)

// Outline is the stage's domain, with its disks in their pools. Those that are uploaded are raw, and
// called so: which are is known when they are delivered.
func (p *Place) Outline(def targets.Definition, stage targets.Outline) (targets.Outline, error) {
	o := stage
	o.Place = "libvirt " + p.at.String()
	o.Disks = slices.Clone(stage.Disks)
	for at := range o.Disks {
		i := slices.IndexFunc(def.VM.Disks, func(d inventory.Disk) bool { return d.Key == o.Disks[at].Key })
		o.Disks[at].On = "pool " + cmp.Or(p.opts.Maps.Storage(mapping.Datastore(def.VM.Disks[i])), p.at.pool)
		o.Disks[at].As = p.volumeName(def.VM, i, targets.Raw)
	}
	return o, nil
}
