package libvirt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
)

// sourceID returns 16 hex digits that identify a source VM: a hash of its reference and UUIDs.
func sourceID(vm *inventory.VM) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", vm.Ref, vm.InstanceUUID, vm.UUID))
	return hex.EncodeToString(sum[:8])
}

// nameMax is the number of bytes of a VM's name that its volume names contain.
const nameMax = 40

// volumeName returns the name of vm's n-th disk: its prefix, the number and the format.
func volumeName(maps namemap.Map, vm *inventory.VM, n int, format targets.Format) string {
	return fmt.Sprintf("%s-disk%d.%s", volumePrefix(maps, vm), n, format)
}

// volumePrefix returns the common prefix of the names of vm's volumes: ASCII characters of the VM's
// name and its
// sourceID. LVM accepts it, too.
func volumePrefix(maps namemap.Map, vm *inventory.VM) string {
	plain := strings.Map(func(r rune) rune {
		if r > 127 {
			return '_'
		}
		return r
	}, dir.SafeName(maps.Name(vm.Name)))
	return avoidReserved(plain[:min(len(plain), nameMax)]) + "-" + sourceID(vm)
}

// reserved are what no name of a volume of LVM's may have within, and what none may begin with (apply_lvname_restrictions
// in lib/misc/lvm-string.c).
var (
	// reserved and reservedPrefix match what LVM does not accept within a volume's name, and at its
	// beginning
	// (apply_lvname_restrictions in lib/misc/lvm-string.c).
	reserved = regexp.MustCompile(`_(cdata|cmeta|corig|cpool|cvol|imeta|iorig|mimage|mlog|pmspare|rimage|rmeta|tdata|tmeta|vdata|vorigin|wcorig)`)
	// names that begin like snapshots or temporary volumes of LVM
	reservedPrefix = regexp.MustCompile(`^(pvmove|snapshot)`)
)

// avoidReserved changes the parts of a name that LVM reserves.
func avoidReserved(name string) string {
	return reservedPrefix.ReplaceAllString(reserved.ReplaceAllString(name, "-$1"), "vm-$1")
}

// Ends of the names of volumes, behind the VM's identity: of its disks, and of all.
const (
	diskVolumes = `-disk[0-9]+\.(raw|qcow2)$`            // ending of the names of a VM's disks
	allVolumes  = `-(disk[0-9]+\.(raw|qcow2)|vars\.fd)$` // also of the template for EFI variables
)

// ownVolumes lists the volumes whose names contain vm's sourceID and match the ending. The VM's name
// may have changed
// since they were created. pools can contain duplicates.
func ownVolumes(ctx context.Context, c *rpc.Client, pools []pool, vm *inventory.VM, end string) ([]rpc.Volume, error) {
	made := regexp.MustCompile(`-` + sourceID(vm) + end)
	var own []rpc.Volume
	listed := map[string]bool{}
	for _, in := range pools {
		if listed[in.Name] {
			continue
		}
		listed[in.Name] = true
		if err := c.Refresh(ctx, in.Pool); err != nil {
			return nil, fmt.Errorf("refresh pool %s: %w", in.Name, err)
		}
		all, err := c.Volumes(ctx, in.Pool)
		if err != nil {
			return nil, fmt.Errorf("list pool %s: %w", in.Name, err)
		}
		for _, v := range all {
			if made.MatchString(v.Name) {
				own = append(own, v)
			}
		}
	}
	return own, nil
}

// deleteVolume deletes v. It retries for ten seconds while libvirt finishes an aborted upload to the
// volume.
func deleteVolume(ctx context.Context, c *rpc.Client, v rpc.Volume) error {
	const pause, tries = 100 * time.Millisecond, 100
	for try := 1; ; try++ {
		err := c.DeleteVolume(ctx, v)
		if try == tries || !rpc.IsCode(err, rpc.OperationInvalid, rpc.OperationFailed, rpc.InternalError) { // InternalError if lvremove failed
			return inUse(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// inUse adds a remedy to the error for a volume that LVM does not remove.
func inUse(err error) error {
	if !rpc.IsCode(err, rpc.InternalError) {
		return err
	}
	return fault.New(fault.Conflict, "%w", err).
		WithHint("find the process that has it open: fuser -v /dev/VG/LV; after an aborted upload it can be libvirtd, whose restart does not affect VMs: systemctl restart libvirtd; then run the same command again")
}

// uploadImage creates a raw volume, writes the image to it, and compares the two.
func (j *job) uploadImage(ctx context.Context, img targets.Image, into pool, name string) (rpc.Volume, error) {
	src, err := j.Open(ctx, img)
	if err != nil {
		return rpc.Volume{}, err
	}
	v, err := j.fillVolume(ctx, src, into, name)
	if err = errors.Join(err, src.Close()); err != nil {
		return rpc.Volume{}, fmt.Errorf("upload disk %d: %w", img.Key, err)
	}
	return v, nil
}

// fillVolume creates a raw volume with the content of src, and compares the two.
func (j *job) fillVolume(ctx context.Context, src disk.Source, into pool, name string) (rpc.Volume, error) {
	text, err := volumeXML(into, name, src.Size())
	if err != nil {
		return rpc.Volume{}, err
	}
	v, err := j.client.CreateVolume(ctx, into.Pool, text)
	if err != nil {
		return v, j.fullError(ctx, into, src.Size(), err)
	}
	if src.Size() == 0 {
		return v, nil
	}
	if err := j.client.Upload(ctx, v, src, j.addProgress); err != nil {
		return v, err
	}
	return v, j.compareVolume(ctx, v, src)
}

// fullError converts the error of a failed creation to fault.Full if the volume group has too little
// space. libvirt
// has no error code for this case.
func (j *job) fullError(ctx context.Context, into pool, size int64, err error) error {
	if !into.block || !rpc.IsCode(err, rpc.InternalError) {
		return err
	}
	if _, available, asked := j.client.PoolInfo(ctx, into.Pool); asked != nil || available >= size {
		return err
	}
	return fault.New(fault.Full, "%w", err).WithHint("free space in the volume group and run the same command again: vgs; lvs")
}

// compareVolume reads v back and compares it with src. After a difference it reads again, with pauses
// from firstPause to
// lastPause: libvirt 9.0 was observed to report holes, or the end, in a range that it had just written.
func (j *job) compareVolume(ctx context.Context, v rpc.Volume, src disk.Source) (err error) {
	c := &comparison{ctx: ctx, src: src, progress: j.addProgress}
	for pause := firstPause; pause <= lastPause; pause *= 2 {
		if err = j.client.Download(ctx, v, src.Size(), c); !fault.Is(err, fault.Corrupt) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// The pauses between comparisons double.
const (
	firstPause = 200 * time.Millisecond  // the pause doubles with each comparison
	lastPause  = 3200 * time.Millisecond // pause before the last comparison
)

// comparison implements rpc.Reader and compares a volume with a disk. It can be used for several
// downloads.
type comparison struct {
	ctx      context.Context // context for reads of src
	src      disk.Source     // disk with the expected content
	buf      []byte          // reused by Data
	progress func(int64)     // receives the number of bytes that were compared first
	reported int64           // offset up to which progress was reported
}

// reportUpTo reports that all bytes before end are equal.
func (c *comparison) reportUpTo(end int64) {
	if end > c.reported {
		c.progress(end - c.reported)
		c.reported = end
	}
}

// Data compares bytes of the volume with the disk.
func (c *comparison) Data(off int64, p []byte) error {
	if len(c.buf) < len(p) {
		c.buf = make([]byte, len(p))
	}
	want := c.buf[:len(p)]
	if err := c.src.ReadAt(c.ctx, want, off); err != nil {
		return err
	}
	if !bytes.Equal(p, want) {
		return contentError(off)
	}
	c.reportUpTo(off + int64(len(p)))
	return nil
}

// Zeros verifies that the disk contains only zeros in a hole of the volume.
func (c *comparison) Zeros(r disk.Range) error {
	extents, err := c.src.Extents(c.ctx, r)
	if err != nil {
		return err
	}
	none := make([]byte, rpc.Part)
	for _, e := range extents {
		for off := e.Off; e.Kind == disk.Data && off < e.End(); off += rpc.Part {
			if err := c.Data(off, none[:min(rpc.Part, e.End()-off)]); err != nil {
				return err
			}
		}
		c.reportUpTo(e.End())
	}
	return nil
}

// contentError returns the error for a difference at or after an offset.
func contentError(off int64) error {
	return fault.New(fault.Corrupt, "the volume in libvirt differs from the image at or after byte %d", off).
		WithHint("run the same command again; if it differs again, check the pool's storage: dmesg")
}

// removeVolumes deletes all volumes of vm in the pools.
func removeVolumes(ctx context.Context, c *rpc.Client, pools []pool, vm *inventory.VM) error {
	volumes, err := ownVolumes(ctx, c, pools, vm, allVolumes)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if err := deleteVolume(ctx, c, v); err != nil {
			return fmt.Errorf("delete volume %s: %w", v.Name, err)
		}
	}
	return nil
}
