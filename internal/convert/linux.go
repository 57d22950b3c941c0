package convert

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/initramfs"
	"github.com/decamp/decamp/internal/guest/linux"
)

// Options say what LinuxAppend cannot find in the guest.
type Options struct {
	// Cards are the network cards whose names in the guest are to stay.
	Cards []Card

	// Seats are all network cards of the VM as they were at the source. Without them files that
	// name a card by its driver or its place on the bus are noted, and left.
	Seats []Seat

	// EFI reports that the VM boots by EFI: a system partition without fallback loader gets one.
	EFI bool

	// GuestAgent has a guest without QEMU's guest agent install it at its next boot.
	GuestAgent bool

	// Appliance mounts what this process cannot write: XFS, btrfs, and ext4 with something in
	// its journal or with features that are not known here. nil: such guests are refused.
	Appliance Appliance

	// Now returns the time for changed files; time.Now if nil.
	Now func() time.Time

	namesOnly bool // Prepare
}

// Prepare changes only the names of disks and cards in a Linux guest, before another engine converts
// it: UUIDs for device names, network names by MAC. Its changes and guarantees are those of
// LinuxAppend.
func Prepare(ctx context.Context, disks []Disk, o Options) (Result, error) {
	o.namesOnly = true
	return LinuxAppend(ctx, disks, o)
}

// LinuxAppend changes a Linux guest so that it boots from virtio-scsi or virtio-blk and finds
// its network on virtio-net: modules into each initramfs, UUIDs for device names, network names
// by MAC. disks are all of the guest's, in its order. After an error, or for a guest that is
// refused (fault.Unsupported, fault.Conflict, fault.Full), nothing was written to an overlay.
func LinuxAppend(ctx context.Context, disks []Disk, o Options) (Result, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	b, cancel := budget.New(ctx, budget.Conversion())
	defer cancel()
	above := layers(disks)
	result, err := onLayers(ctx, b, above, o)
	if err == nil {
		err = addLoader(b, above, o, &result)
	}
	if err != nil {
		return Result{}, orLimit(err)
	}
	return result, take(disks, above)
}

// orLimit returns err, as fault.Unsupported if a limit of reading the guest was reached.
func orLimit(err error) error {
	var limit *budget.Error
	if errors.As(err, &limit) && !fault.Is(err, fault.Unsupported) {
		return fault.New(fault.Unsupported, "%w", err).WithHint(useCompat)
	}
	return err
}

// onLayers is LinuxAppend on disks that are thrown away after an error.
func onLayers(ctx context.Context, b *budget.Budget, disks []Disk, o Options) (Result, error) {
	vols, err := volumes(b, disks)
	if err != nil {
		return Result{}, err
	}
	l, err := find(vols)
	if err != nil {
		return Result{}, err
	}
	t, err := l.open(o.Now)
	if o.Appliance != nil && (fault.Is(err, fault.Unsupported) || fault.Is(err, fault.Conflict)) {
		result, missing := l.mounted(ctx, b, vols, disks, o)
		return result, orUnclean(err, missing)
	}
	if err != nil {
		return Result{}, err
	}
	return convert(b, t, vols, disks, o)
}

// orUnclean returns why a guest was not converted in an appliance. If there is no appliance, and only a
// clean shutdown is missing, the error is that: fault.Conflict.
func orUnclean(outside, inside error) error {
	if !fault.Is(inside, fault.NotFound) || !fault.Is(outside, fault.Conflict) {
		return inside
	}
	return fault.New(fault.Conflict, "%w; and nothing here replays it: %w", outside, inside).
		WithHint("%s; or have it replayed here: %s", fault.HintOf(outside), fault.HintOf(inside))
}

// convert changes a guest whose file systems are open.
func convert(b *budget.Budget, t tree, vols []volume, disks []Disk, o Options) (Result, error) {
	c := &conversion{budget: b, tree: t, vols: vols, makers: map[string]bool{}, links: map[string]string{}, seats: o.Seats, left: map[string]bool{}}
	for _, d := range disks {
		if d.Report.Linux != nil {
			c.nics = append(c.nics, d.Report.Linux.NICs...)
		}
	}
	steps := []func() error{func() error { return c.pinCards(o.Cards) }, c.unbind, c.strangers, c.keepFromCloudInit}
	if o.namesOnly {
		steps = append(steps, c.nameByUUID)
	} else {
		steps = append(steps, c.appendAll, c.nameByUUID, c.persist, c.silenceTools)
	}
	if o.GuestAgent {
		steps = append(steps, c.installAgent)
	}
	for _, step := range steps {
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
	budget *budget.Budget
	tree   tree
	vols   []volume
	links  map[string]string // files of network names that an initramfs gets, too
	makers map[string]bool   // tools that made the guest's initramfs
	seats  []Seat
	nics   []linux.NIC     // cards that the guest configures
	left   map[string]bool // cards of netplan's that are left, by file and id
}

// maxInitramfs bounds an initramfs, in bytes.
const maxInitramfs = 512 << 20

// appendAll appends the missing modules to each initramfs of each kernel.
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
	in, err := look(c.budget, data, k)
	if err != nil {
		return fault.New(fault.Unsupported, "it cannot be read: %w", err).WithHint("use the compat profile, which changes nothing in the guest")
	}
	c.makers[in.maker] = true
	files, _ := list.closure(drivers())
	add := &addition{budget: c.budget, tree: c.tree, k: k, list: list, in: in, files: in.lacks(files), links: in.lacksLinks(c.links)}
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

// why describes the addition.
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
