package convert

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/initramfs"
)

// Options say what LinuxAppend cannot find in the guest.
type Options struct {
	// Cards are the network cards whose names in the guest are to stay.
	Cards []Card

	// Appliance mounts what this process cannot write: XFS, btrfs, and ext4 with something in
	// its journal or with features that are not known here. nil: such guests are refused.
	Appliance Appliance

	// Now dates what is changed in this process; time.Now if nil.
	Now func() time.Time
}

// LinuxAppend changes a Linux guest so that it boots from virtio-scsi or virtio-blk and finds
// its network on virtio-net: modules into each initramfs, UUIDs for device names, network names
// by MAC. disks are all of the guest's, in its order. After an error, or for a guest that is
// refused (fault.Unsupported, fault.Conflict, fault.Full), nothing was written to an overlay.
func LinuxAppend(ctx context.Context, disks []Disk, o Options) (Result, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	vols, err := volumes(ctx, disks)
	if err != nil {
		return Result{}, err
	}
	l, err := find(vols)
	if err != nil {
		return Result{}, err
	}
	t, err := l.open(o.Now)
	if o.Appliance != nil && (fault.Is(err, fault.Unsupported) || fault.Is(err, fault.Conflict)) {
		return inAppliance(ctx, disks, o)
	}
	if err != nil {
		return Result{}, err
	}
	return convert(t, vols, o)
}

// convert changes a guest whose file systems are open.
func convert(t tree, vols []volume, o Options) (Result, error) {
	c := &conversion{tree: t, vols: vols, makers: map[string]bool{}}
	for _, step := range []func() error{
		func() error { return c.pinCards(o.Cards) }, c.appendAll, c.nameByUUID, c.persist, c.silenceTools,
	} {
		if err := step(); err != nil {
			return Result{}, err
		}
	}
	if err := t.flush(); err != nil {
		return Result{}, fmt.Errorf("write to the overlay: %w", err)
	}
	return c.Result, nil
}

// A conversion is one under way.
type conversion struct {
	Result
	tree   tree
	vols   []volume
	links  map[string]string // files of network names that an initramfs gets, too
	makers map[string]bool   // of the guest's initramfs
}

// maxInitramfs bounds an initramfs, in bytes.
const maxInitramfs = 512 << 20

// appendAll appends to each initramfs of each kernel what it lacks.
func (c *conversion) appendAll() error {
	kernels := c.tree.kernels(&c.Result)
	able := 0
	for _, k := range kernels {
		list, err := c.tree.modules(k)
		if err != nil {
			return fmt.Errorf("kernel %s: %w", k.release, err)
		}
		if missing := list.missing(); len(missing) > 0 {
			c.note("kernel %s cannot run on virtio: it has no %s", k.release, strings.Join(missing, ", "))
			continue
		}
		able++
		for _, path := range k.initramfs {
			if err := c.appendTo(path, k, list); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	if able == 0 {
		return fault.New(fault.Unsupported, "no kernel of the guest has both an initramfs and virtio drivers (%d kernels)", len(kernels)).
			WithHint("use the compat profile, which changes nothing in the guest")
	}
	return nil
}

// missing returns the drivers that a guest cannot do without and a kernel does not have.
func (l *moduleList) missing() []string {
	_, missing := l.closure([]string{"virtio_pci", "virtio_net"})
	if _, disks := l.closure([]string{"virtio_blk", "virtio_scsi"}); len(disks) == 2 {
		missing = append(missing, disks...)
	}
	return missing
}

// appendTo appends to one initramfs.
func (c *conversion) appendTo(path string, k kernel, list *moduleList) error {
	on, inner := c.tree.find(path)
	data, err := on.ReadFile(inner, maxInitramfs)
	if err != nil {
		return err
	}
	in, err := look(data, k)
	if err != nil {
		return fault.New(fault.Unsupported, "it cannot be read: %w", err).WithHint("use the compat profile, which changes nothing in the guest")
	}
	c.makers[in.maker] = true
	files, _ := list.closure(drivers())
	add := &addition{tree: c.tree, k: k, list: list, in: in, files: in.lacks(files), links: in.lacksLinks(c.links)}
	if len(add.files) == 0 && len(add.links) == 0 {
		return nil
	}
	packed, err := add.bytes()
	if err != nil {
		return err
	}
	if err := on.AppendFile(inner, appended(len(data), packed)); err != nil {
		return err
	}
	c.change(path, "%s", add.why())
	return nil
}

// why tells what is added.
func (a *addition) why() string {
	var names []string
	for _, file := range a.files {
		names = append(names, initramfs.Module(file))
	}
	slices.Sort(names)
	if names == nil {
		return "network names by MAC"
	}
	return "drivers appended: " + strings.Join(names, " ")
}

// lacksLinks returns the files of network names that are not inside.
func (in inside) lacksLinks(links map[string]string) map[string]string {
	out := map[string]string{}
	for path, text := range links {
		if in.maker != "" && in.links[path] != text {
			out[path] = text
		}
	}
	return out
}
