package libvirt

import (
	"context"
	"os"
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
	"github.com/decamp/decamp/internal/targets/platform"
)

// A job is one Deliver.
type job struct {
	platform.Delivery
	at      address
	maps    namemap.Map
	connect func(context.Context) (*rpc.Client, error)
	finder  poolFinder
	domains domains

	client *rpc.Client
	into   []pool // for each image
	pools  []pool // all that there may be volumes of the VM in
	begun  bool   // something may have been made
	done   int64
}

// A volume is an image in its pool.
type volume struct {
	path   string // on libvirt's machine
	format targets.Format
	block  bool  // it is a device
	size   int64 // of the disk
	room   int64 // of the device, which is no less
}

func (j *job) run(ctx context.Context) (platform.Receipt, error) {
	c, err := j.connect(ctx)
	if err != nil {
		return platform.Receipt{}, err
	}
	defer c.Close()
	j.client = c
	if err := j.findPools(ctx); err != nil {
		return platform.Receipt{}, err
	}
	x, err := parseDomain(j.Domain)
	if err != nil {
		return platform.Receipt{}, err
	}
	warnings, err := missingNetworks(ctx, c, j.at, x)
	if err != nil {
		return platform.Receipt{}, err
	}
	warnings = append(warnings, j.leavesVariables(x)...)
	there, err := j.domains.find(ctx, c, j.VM, x.Name)
	if err == nil && there != nil {
		there, err = j.whole(ctx, *there)
	}
	if err == nil && there == nil {
		there, err = j.make(ctx)
	}
	if err != nil {
		return platform.Receipt{}, err
	}
	return platform.Receipt{Place: j.at.name(), ID: there.UUID.String(), Name: there.Name, Warnings: warnings}, j.release()
}

// findPools finds where each image goes, in the order of images.
func (j *job) findPools(ctx context.Context) (err error) {
	disks := make([]inventory.Disk, len(j.Images))
	for i, img := range j.Images {
		d, ok := j.VM.Disk(img.Key)
		if !ok {
			return fault.New(fault.Internal, "image %s is of no disk of VM %s", img.Path, j.VM.Name)
		}
		disks[i] = *d
	}
	if j.into, err = j.finder.forDisks(ctx, j.client, disks); err != nil {
		return err
	}
	j.pools, err = j.finder.all(ctx, j.client)
	return err
}

// whole returns a domain that is there, or nil if its volumes are not: libvirt may have defined it
// when nobody waited for that any more, and its volumes were taken away.
func (j *job) whole(ctx context.Context, d rpc.Domain) (*rpc.Domain, error) {
	volumes, err := ownVolumes(ctx, j.client, j.pools, j.VM, diskVolumes)
	if err != nil || len(volumes) == len(j.Images) {
		return &d, err
	}
	if err := j.waiting(); err != nil {
		return nil, err
	}
	return nil, j.domains.forget(ctx, j.client, j.VM)
}

// make makes the volumes and, of them, the domain.
func (j *job) make(ctx context.Context) (*rpc.Domain, error) {
	if err := j.waiting(); err != nil {
		return nil, err
	}
	j.begun = true
	placed, err := j.images(ctx)
	if err != nil {
		return nil, err
	}
	vars, err := j.variables(ctx)
	if err != nil {
		return nil, err
	}
	text, err := j.domainXML(placed, vars)
	if err != nil {
		return nil, err
	}
	d, err := j.client.DefineDomain(ctx, text)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	j.begun = false // what is made stays
	return &d, nil
}

// waiting sees that all images are on the stage: what of them is in the pool is about to be replaced.
func (j *job) waiting() error {
	for _, img := range j.Images {
		if _, err := os.Lstat(img.Path); err != nil {
			return fault.New(fault.NotFound, "image is gone: %w", err).WithHint("migrate the VM again")
		}
	}
	return nil
}

// images brings all images into the pool, in the place of what an earlier delivery left there.
func (j *job) images(ctx context.Context) ([]volume, error) {
	if err := removeVolumes(ctx, j.client, j.pools, j.VM); err != nil {
		return nil, err
	}
	linked, err := j.linkAll(ctx)
	placed := make([]volume, len(j.Images))
	for i := range j.Images {
		if err == nil {
			placed[i], err = j.image(ctx, i, linked)
		}
	}
	return placed, err
}

// image finds the i-th image among the volumes that were linked, or uploads it.
func (j *job) image(ctx context.Context, i int, linked []rpc.Volume) (volume, error) {
	img := j.Images[i]
	v := volume{format: img.Format, block: j.into[i].block, size: img.Size}
	name := volumeName(j.maps, j.VM, i, img.Format)
	at := slices.IndexFunc(linked, func(v rpc.Volume) bool { return v.Name == name })
	var in rpc.Volume
	var err error
	if at >= 0 {
		in = linked[at]
	} else {
		v.format = targets.Raw
		in, err = j.upload(ctx, img, j.into[i], volumeName(j.maps, j.VM, i, targets.Raw))
	}
	if err == nil {
		v.path, err = j.client.VolumePath(ctx, in)
	}
	if err == nil && v.block {
		v.room, err = j.client.VolumeSize(ctx, in)
	}
	return v, err
}

// count tells how many bytes of the disks were sent or compared.
func (j *job) count(n int64) {
	if j.Progress == nil {
		return
	}
	j.done += n
	var total int64
	for _, img := range j.Images {
		total += 2 * img.Size
	}
	j.Progress(min(j.done, total), total) // what is small is not in the total
}

// tidy takes away what a delivery that failed has made, over a connection of its own.
func (j *job) tidy(ctx context.Context) error {
	ctx, cancel := outlive(ctx)
	defer cancel()
	c, err := j.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := j.domains.forget(ctx, c, j.VM); err != nil {
		return err
	}
	return removeVolumes(ctx, c, j.pools, j.VM)
}
