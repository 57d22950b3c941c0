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

// Options contains what LinuxAppend cannot find in the guest.
type Options struct {
	// Cards are the network cards whose names in the guest must not change.
	Cards []Card

	// SourceNICs are all network cards of the VM at the source. Without them, files that select a card by
	// driver or bus address stay unchanged and add a note.
	SourceNICs []SourceNIC

	// EFI means that the VM boots by EFI. A system partition without fallback loader gets one.
	EFI bool

	// GuestAgent means that a guest without QEMU's guest agent installs it at its next boot.
	GuestAgent bool

	// Appliance mounts file systems that this process cannot write: XFS, btrfs, and ext4 with a journal to
	// replay or unsupported features. If it is nil, such guests are refused.
	Appliance Appliance

	// Now returns the time for changed files; time.Now if nil.
	Now func() time.Time

	namesOnly bool // only names are changed, as Prepare does
}

// Prepare changes only the names of disks and cards in a Linux guest, before another engine converts
// it: UUIDs for device names, network names by MAC. Its changes and guarantees are those of
// LinuxAppend.
func Prepare(ctx context.Context, disks []Disk, o Options) (Result, error) {
	o.namesOnly = true
	return LinuxAppend(ctx, disks, o)
}

// LinuxAppend changes a Linux guest so that it boots from virtio-scsi or virtio-blk and finds its
// network on virtio-net. It appends modules to each initramfs, replaces device names by UUIDs, and
// binds network names to MACs. disks are all disks of the guest in its order. If it fails or refuses
// the guest (fault.Unsupported, fault.Conflict, fault.Full), the overlays are unchanged.
func LinuxAppend(ctx context.Context, disks []Disk, o Options) (Result, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	b, cancel := budget.New(ctx, budget.Conversion())
	defer cancel()
	// All changes are made on layers; only a successful conversion reaches the overlays.
	above := newLayers(disks)
	result, err := onLayers(ctx, b, above, o)
	if err == nil {
		err = addLoader(b, above, o, &result)
	}
	if err != nil {
		return Result{}, orLimit(err)
	}
	return result, mergeLayers(disks, above)
}

// orLimit returns err. If a limit of reading the guest was reached, its kind becomes fault.Unsupported.
func orLimit(err error) error {
	var limit *budget.Error
	if errors.As(err, &limit) && !fault.Is(err, fault.Unsupported) {
		return fault.New(fault.Unsupported, "%w", err).WithHint(useCompat)
	}
	return err
}

// onLayers converts the guest on layers that the caller discards after an error.
func onLayers(ctx context.Context, b *budget.Budget, disks []Disk, o Options) (Result, error) {
	vols, err := listVolumes(b, disks)
	if err != nil {
		return Result{}, err
	}
	l, err := findLayout(vols)
	if err != nil {
		return Result{}, err
	}
	t, err := l.openAll(o.Now)
	if o.Appliance != nil && (fault.Is(err, fault.Unsupported) || fault.Is(err, fault.Conflict)) {
		result, missing := l.convertInAppliance(ctx, b, vols, disks, o)
		return result, orUnclean(err, missing)
	}
	if err != nil {
		return Result{}, err
	}
	return convertGuest(b, t, vols, disks, o)
}

// orUnclean returns the reason why a guest was not converted in an appliance. If only a clean shutdown
// is missing and no appliance is available, the kind is fault.Conflict and the error contains both
// reasons.
func orUnclean(outside, inside error) error {
	if !fault.Is(inside, fault.NotFound) || !fault.Is(outside, fault.Conflict) {
		return inside
	}
	return fault.New(fault.Conflict, "%w; and no appliance is available to replay it: %w", outside, inside).
		WithHint("%s; or replay it in an appliance: %s", fault.HintOf(outside), fault.HintOf(inside))
}

// convertGuest changes a guest whose file systems are open, and flushes the changes.
func convertGuest(b *budget.Budget, t tree, vols []volume, disks []Disk, o Options) (Result, error) {
	c := &conversion{budget: b, tree: t, volumes: vols, makers: map[string]bool{}, links: map[string]string{}, seats: o.SourceNICs, skippedNICs: map[string]bool{}}
	for _, d := range disks {
		if d.Report.Linux != nil {
			c.nics = append(c.nics, d.Report.Linux.NICs...)
		}
	}
	// Network names come first, because appendAll adds their files to each initramfs.
	steps := []func() error{func() error { return c.pinCards(o.Cards) }, c.unbindCards, c.noteUnknownCards, c.keepFromCloudInit}
	if o.namesOnly {
		steps = append(steps, c.nameByUUID)
	} else {
		steps = append(steps, c.appendAll, c.nameByUUID, c.persistDrivers, c.silenceTools)
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

// A conversion is the state of one LinuxAppend.
type conversion struct {
	Result
	budget      *budget.Budget    // limits of the conversion
	tree        tree              // files of the guest
	volumes     []volume          // volumes of all disks
	links       map[string]string // contents of files of network names that each initramfs gets, by path
	makers      map[string]bool   // tools that made the guest's initramfs
	seats       []SourceNIC       // network cards at the source
	nics        []linux.NIC       // network cards that the guest configures
	skippedNICs map[string]bool   // cards of netplan that stay unchanged, by file and ID
}

// maxInitramfs limits the size of an initramfs, in bytes.
const maxInitramfs = 512 << 20

// appendAll appends the missing modules to each initramfs of each kernel. It fails if no kernel can run
// on virtio.
func (c *conversion) appendAll() error {
	kernels := c.tree.listKernels(&c.Result)
	// able counts the kernels that can run on virtio with their initramfs.
	able := 0
	for _, k := range kernels {
		list, err := c.tree.readModules(k)
		if err != nil {
			return fmt.Errorf("kernel %s: %w", k.release, err)
		}
		if missing := list.missingDrivers(); len(missing) > 0 {
			c.addNote("kernel %s cannot run on virtio: it has no %s", k.release, strings.Join(missing, ", "))
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

// missingDrivers returns the required drivers that a kernel does not have. One of the two disk drivers
// is sufficient.
func (l *moduleList) missingDrivers() []string {
	_, missing := l.withDependencies([]string{"virtio_pci", "virtio_net"})
	if _, disks := l.withDependencies([]string{"virtio_blk", "virtio_scsi"}); len(disks) == 2 {
		missing = append(missing, disks...)
	}
	return missing
}

// appendTo appends the missing files to one initramfs. It does nothing if none are missing.
func (c *conversion) appendTo(path string, k kernel, list *moduleList) error {
	on, inner := c.tree.findMount(path)
	data, err := on.ReadFile(inner, maxInitramfs)
	if err != nil {
		return err
	}
	in, err := readInitramfs(c.budget, data, k)
	if err != nil {
		return fault.New(fault.Unsupported, "read its archives: %w", err).WithHint("use the compat profile, which changes nothing in the guest")
	}
	// persistDrivers configures the tools that made an initramfs.
	c.makers[in.maker] = true
	files, _ := list.withDependencies(virtioDrivers())
	add := &addition{budget: c.budget, tree: c.tree, kernel: k, list: list, state: in, files: in.missingModules(files), links: in.missingLinks(c.links)}
	if len(add.files) == 0 && len(add.links) == 0 {
		return nil
	}
	packed, err := add.buildArchive()
	if err != nil {
		return err
	}
	if err := on.AppendFile(inner, appendedData(len(data), packed)); err != nil {
		return err
	}
	c.addChange(path, "%s", add.describeChange())
	return nil
}

// describeChange returns the reason for the change, for the result.
func (a *addition) describeChange() string {
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

// missingLinks returns the files of network names that the initramfs does not contain. An initramfs of
// an unknown maker gets none.
func (in initramfsState) missingLinks(links map[string]string) map[string]string {
	out := map[string]string{}
	for path, text := range links {
		if in.maker != "" && in.links[path] != text {
			out[path] = text
		}
	}
	return out
}
