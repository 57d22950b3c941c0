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

// identity tells one source VM from any other, in 16 hex digits.
func identity(vm *inventory.VM) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", vm.Ref, vm.InstanceUUID, vm.UUID))
	return hex.EncodeToString(sum[:8])
}

// nameMost is how many bytes of a VM's name are in those of its volumes.
const nameMost = 40

// volumeName is that of vm's n-th disk: plain letters of its name, its identity and the format.
func volumeName(maps namemap.Map, vm *inventory.VM, n int, format targets.Format) string {
	return fmt.Sprintf("%s-disk%d.%s", volumePrefix(maps, vm), n, format)
}

// volumePrefix is the front of the names of all of vm's volumes. It is such that LVM takes it, too.
func volumePrefix(maps namemap.Map, vm *inventory.VM) string {
	plain := strings.Map(func(r rune) rune {
		if r > 127 {
			return '_'
		}
		return r
	}, dir.SafeName(maps.Name(vm.Name)))
	return unreserved(plain[:min(len(plain), nameMost)]) + "-" + identity(vm)
}

// reserved are what no name of a volume of LVM's may have within, and what none may begin with (apply_lvname_restrictions
// in lib/misc/lvm-string.c).
var (
	reserved       = regexp.MustCompile(`_(cdata|cmeta|corig|cpool|cvol|imeta|iorig|mimage|mlog|pmspare|rimage|rmeta|tdata|tmeta|vdata|vorigin|wcorig)`)
	reservedPrefix = regexp.MustCompile(`^(pvmove|snapshot)`)
)

func unreserved(name string) string {
	return reservedPrefix.ReplaceAllString(reserved.ReplaceAllString(name, "-$1"), "vm-$1")
}

// Ends of the names of volumes, behind the VM's identity: of its disks, and of all.
const (
	diskVolumes = `-disk[0-9]+\.(raw|qcow2)$`
	allVolumes  = `-(disk[0-9]+\.(raw|qcow2)|vars\.fd)$`
)

// ownVolumes lists the volumes of pools that were made of vm, whatever it was called then, and whose names
// end so. A pool may be there twice.
func ownVolumes(ctx context.Context, c *rpc.Client, pools []pool, vm *inventory.VM, end string) ([]rpc.Volume, error) {
	made := regexp.MustCompile(`-` + identity(vm) + end)
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

// deleteVolume deletes v, and waits for an upload into it that libvirt has not given up yet.
func deleteVolume(ctx context.Context, c *rpc.Client, v rpc.Volume) error {
	const pause, tries = 100 * time.Millisecond, 100
	for try := 1; ; try++ {
		err := c.DeleteVolume(ctx, v)
		if try == tries || !rpc.IsCode(err, rpc.OperationInvalid, rpc.OperationFailed, rpc.InternalError) { // the last is lvremove's
			return inUse(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// inUse gives a volume that LVM does not remove a remedy.
func inUse(err error) error {
	if !rpc.IsCode(err, rpc.InternalError) {
		return err
	}
	return fault.New(fault.Conflict, "%w", err).
		WithHint("see who has it open: fuser -v /dev/VG/LV; after an upload that was cut off it may be libvirt, which VMs outlive: systemctl restart libvirtd; then run the same command again")
}

// upload makes a raw volume of an image, and compares it with the image.
func (j *job) upload(ctx context.Context, img targets.Image, into pool, name string) (rpc.Volume, error) {
	src, err := j.Open(ctx, img)
	if err != nil {
		return rpc.Volume{}, err
	}
	v, err := j.fill(ctx, src, into, name)
	if err = errors.Join(err, src.Close()); err != nil {
		return rpc.Volume{}, fmt.Errorf("upload disk %d: %w", img.Key, err)
	}
	return v, nil
}

func (j *job) fill(ctx context.Context, src disk.Source, into pool, name string) (rpc.Volume, error) {
	text, err := volumeXML(into, name, src.Size())
	if err != nil {
		return rpc.Volume{}, err
	}
	v, err := j.client.CreateVolume(ctx, into.Pool, text)
	if err != nil {
		return v, j.noRoom(ctx, into, src.Size(), err)
	}
	if src.Size() == 0 {
		return v, nil
	}
	if err := j.client.Upload(ctx, v, src, j.count); err != nil {
		return v, err
	}
	return v, j.compare(ctx, v, src)
}

// noRoom tells a volume that was not made for lack of room: of what LVM says libvirt has no number.
func (j *job) noRoom(ctx context.Context, into pool, size int64, err error) error {
	if !into.block || !rpc.IsCode(err, rpc.InternalError) {
		return err
	}
	if _, available, asked := j.client.PoolInfo(ctx, into.Pool); asked != nil || available >= size {
		return err
	}
	return fault.New(fault.Full, "%w", err).WithHint("make room in the volume group and run the same command again: vgs; lvs")
}

// compare reads v back. What differs is read again a little later, a few times: libvirt 9.0 was seen to
// tell of holes, or of an end, where the data was that it had just taken.
func (j *job) compare(ctx context.Context, v rpc.Volume, src disk.Source) (err error) {
	c := &comparison{ctx: ctx, src: src, told: j.count}
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
	firstPause = 200 * time.Millisecond
	lastPause  = 3200 * time.Millisecond
)

// A comparison holds a disk against what libvirt has of it. It may be made again.
type comparison struct {
	ctx  context.Context
	src  disk.Source
	buf  []byte
	told func(int64)
	held int64 // bytes from the front that told knows of
}

// tell says that all before end is the same.
func (c *comparison) tell(end int64) {
	if end > c.held {
		c.told(end - c.held)
		c.held = end
	}
}

// Data compares bytes that libvirt sent.
func (c *comparison) Data(off int64, p []byte) error {
	if len(c.buf) < len(p) {
		c.buf = make([]byte, len(p))
	}
	want := c.buf[:len(p)]
	if err := c.src.ReadAt(c.ctx, want, off); err != nil {
		return err
	}
	if !bytes.Equal(p, want) {
		return differs(off)
	}
	c.tell(off + int64(len(p)))
	return nil
}

// Zeros sees that there is nothing on the disk where libvirt has a hole.
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
		c.tell(e.End())
	}
	return nil
}

func differs(off int64) error {
	return fault.New(fault.Corrupt, "what libvirt stored differs from the image at or after byte %d", off).
		WithHint("run the same command again; if it differs again, look at the pool's storage: dmesg")
}

// removeVolumes deletes vm's volumes of pools.
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
