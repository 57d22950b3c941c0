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

// job is one call of Deliver.
type job struct {
	platform.Delivery
	at      address                                    // address of libvirt
	maps    namemap.Map                                // names and storages at the target
	connect func(context.Context) (*rpc.Client, error) // opens another connection
	finder  poolFinder                                 // finds pools
	domains domainFinder                               // finds domains

	client         *rpc.Client // set by run
	into           []pool      // pool of each image, in the order of Images
	pools          []pool      // all pools that may contain volumes of the VM
	mayHaveCreated bool        // volumes or a domain may exist that a failed delivery must remove
	done           int64       // bytes sent and bytes compared, together
}

// volume is an image in its pool.
type volume struct {
	path       string         // path on libvirt's host
	format     targets.Format // format of the volume, which may differ from the image's
	block      bool           // it is a block device
	size       int64          // capacity of the disk in bytes
	deviceSize int64          // size of the device in bytes, at least size; zero for files
}

// run delivers the VM, or finds it complete. It sets mayHaveCreated before the first change.
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
	warnings = append(warnings, j.warnNoVariables(x)...)
	there, err := j.domains.findDomain(ctx, c, j.VM, x.Name)
	if err == nil && there != nil {
		there, err = j.completeDomain(ctx, *there)
	}
	if err == nil && there == nil {
		there, err = j.createDomain(ctx)
	}
	if err != nil {
		return platform.Receipt{}, err
	}
	return platform.Receipt{Platform: j.at.displayName(), ID: there.UUID.String(), Name: there.Name, Warnings: warnings}, j.removeStaged()
}

// findPools sets j.into and j.pools.
func (j *job) findPools(ctx context.Context) (err error) {
	disks := make([]inventory.Disk, len(j.Images))
	for i, img := range j.Images {
		d, ok := j.VM.Disk(img.Key)
		if !ok {
			return fault.New(fault.Internal, "image %s does not belong to a disk of VM %s", img.Path, j.VM.Name)
		}
		disks[i] = *d
	}
	if j.into, err = j.finder.forDisks(ctx, j.client, disks); err != nil {
		return err
	}
	j.pools, err = j.finder.allPools(ctx, j.client)
	return err
}

// completeDomain returns d if all its volumes exist. Otherwise it undefines the domain and returns nil:
// libvirt may
// have defined it after decamp had given up waiting and had removed the volumes.
func (j *job) completeDomain(ctx context.Context, d rpc.Domain) (*rpc.Domain, error) {
	volumes, err := ownVolumes(ctx, j.client, j.pools, j.VM, diskVolumes)
	if err != nil || len(volumes) == len(j.Images) {
		return &d, err
	}
	if err := j.checkStaged(); err != nil {
		return nil, err
	}
	return nil, j.domains.undefineOwn(ctx, j.client, j.VM)
}

// createDomain creates the volumes and then defines the domain.
func (j *job) createDomain(ctx context.Context) (*rpc.Domain, error) {
	if err := j.checkStaged(); err != nil {
		return nil, err
	}
	j.mayHaveCreated = true
	placed, err := j.placeImages(ctx)
	if err != nil {
		return nil, err
	}
	vars, err := j.uploadVariables(ctx)
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
	j.mayHaveCreated = false // the domain is complete
	return &d, nil
}

// checkStaged returns fault.NotFound if an image is missing in the staging folder. It is called before
// volumes of an
// earlier delivery are removed.
func (j *job) checkStaged() error {
	for _, img := range j.Images {
		if _, err := os.Lstat(img.Path); err != nil {
			return fault.New(fault.NotFound, "the image is missing: %w", err).WithHint("migrate the VM again")
		}
	}
	return nil
}

// placeImages links or uploads all images into their pools. It first removes volumes of an earlier
// delivery.
func (j *job) placeImages(ctx context.Context) ([]volume, error) {
	if err := removeVolumes(ctx, j.client, j.pools, j.VM); err != nil {
		return nil, err
	}
	// Images that cannot be linked are uploaded below.
	linked, err := j.linkAll(ctx)
	placed := make([]volume, len(j.Images))
	for i := range j.Images {
		if err == nil {
			placed[i], err = j.placeImage(ctx, i, linked)
		}
	}
	return placed, err
}

// placeImage returns the volume of the i-th image. If it is not among the linked volumes, placeImage
// uploads it as raw.
func (j *job) placeImage(ctx context.Context, i int, linked []rpc.Volume) (volume, error) {
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
		in, err = j.uploadImage(ctx, img, j.into[i], volumeName(j.maps, j.VM, i, targets.Raw))
	}
	if err == nil {
		v.path, err = j.client.VolumePath(ctx, in)
	}
	if err == nil && v.block {
		v.deviceSize, err = j.client.VolumeSize(ctx, in)
	}
	return v, err
}

// addProgress reports n more bytes that were sent or compared. Each byte of a disk counts twice.
func (j *job) addProgress(n int64) {
	if j.Progress == nil {
		return
	}
	j.done += n
	var total int64
	for _, img := range j.Images {
		total += 2 * img.Size
	}
	j.Progress(min(j.done, total), total) // the total does not include the EFI variables
}

// cleanUp removes what a failed delivery created. It uses a new connection, because the old one may be
// broken, and
// works after ctx is canceled.
func (j *job) cleanUp(ctx context.Context) error {
	ctx, cancel := withCleanupTimeout(ctx)
	defer cancel()
	c, err := j.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := j.domains.undefineOwn(ctx, c, j.VM); err != nil {
		return err
	}
	return removeVolumes(ctx, c, j.pools, j.VM)
}
