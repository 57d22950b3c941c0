package convert

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/extwrite"
	reading "github.com/decamp/decamp/internal/guest/tree"
)

// useCompat is the hint for guests that cannot be converted.
const useCompat = "use the compat profile, which changes nothing in the guest"

// A mountPoint is a volume with its position among the guest's files.
type mountPoint struct {
	path      string // path without a leading slash: empty for the root, "boot"
	volume    volume // volume that is mounted there
	subvolume string // btrfs subvolume; empty means the default one
}

// A layout is the list of mount points that a conversion writes to. The root is first.
type layout []mountPoint

// findLayout finds the root file system and the separate /boot of its fstab, by reading only. It fails
// unless exactly one volume contains a Linux.
func findLayout(vols []volume) (layout, error) {
	var roots []mountPoint
	var fstab string
	var unread error // errors of unreadable volumes; the root may be among them
	for _, v := range vols {
		files, err := guest.OpenTree(v.kind, v.files)
		if err != nil {
			unread = errors.Join(unread, fmt.Errorf("%s on %s: %w", v.kind, v.displayName(), v.explainError(err)))
		}
		if err != nil || files == nil {
			continue
		}
		sub, ok := rootIn(files, v.kind)
		if err := v.files.Budget().Err(); err != nil {
			return nil, fmt.Errorf("%s on %s: %w", v.kind, v.displayName(), err)
		}
		// A limit while reading the volume does not prove that it is not the root.
		var limit *budget.Error
		if _, err := files.Open("etc"); !ok && errors.As(err, &limit) {
			unread = errors.Join(unread, fmt.Errorf("%s on %s: %w", v.kind, v.displayName(), err))
		}
		if ok {
			roots = append(roots, mountPoint{volume: v, subvolume: sub})
			text, err := files.ReadFile(sub+"/etc/fstab", maxText)
			if err != nil {
				return nil, fmt.Errorf("etc/fstab on %s: %w", v.displayName(), err)
			}
			fstab = string(text)
		}
	}
	switch {
	case len(roots) == 0 && unread != nil:
		return nil, fault.New(fault.Unsupported, "%w", unread).WithHint(useCompat)
	case len(roots) == 0:
		return nil, fault.New(fault.Unsupported, "no disk has a root file system of Linux that can be read: %s", kindList(vols)).WithHint(useCompat)
	case len(roots) > 1:
		return nil, fault.New(fault.Unsupported, "%d partitions contain a root file system of Linux, and decamp supports one", len(roots)).WithHint(useCompat)
	}
	return layout(roots).withBoot(fstab, vols)
}

// explainError returns the reason why a file system cannot be read. For ext it is that of extwrite,
// which names unsupported features.
func (v volume) explainError(err error) error {
	if v.isExt() {
		if _, refused := extwrite.Open(v.files, time.Now); refused != nil {
			return refused
		}
	}
	return err
}

// rootIn reports whether files contain a Linux, and returns the subvolume.
func rootIn(files *reading.Tree, kind guest.FileSystem) (subvolume string, ok bool) {
	subs := []string{""}
	if kind == guest.Btrfs {
		subs = append(subs, guest.Subvolumes()...)
	}
	for _, sub := range subs {
		has := func(path string) bool { return reading.Has(files, sub+"/"+path) }
		if has("etc/fstab") && (has("lib/modules") || has("usr/lib/modules") || has("sbin/init")) {
			return sub, true
		}
	}
	return "", false
}

// kindList returns the kinds of the volumes for a message.
func kindList(vols []volume) string {
	var names []string
	for _, v := range vols {
		if v.kind != guest.Unknown {
			names = append(names, string(v.kind))
		}
	}
	if names == nil {
		return "no known file systems"
	}
	return strings.Join(names, ", ")
}

// withBoot adds the file system that fstab mounts at /boot, if there is one.
func (l layout) withBoot(fstab string, vols []volume) (layout, error) {
	var spec, options string
	for line := range strings.Lines(fstab) {
		// The last line for /boot takes precedence, because it is mounted on top.
		if f := strings.Fields(line); len(f) >= 2 && f[0][0] != '#' && f[1] == "/boot" {
			spec, options = f[0], strings.Join(f[3:min(4, len(f))], "")
		}
	}
	if spec == "" {
		return l, nil
	}
	for _, v := range vols {
		if !v.matchesDevice(spec) {
			continue
		}
		if !v.isExt() && v.kind != guest.XFS && v.kind != guest.Btrfs {
			return nil, fault.New(fault.Unsupported, "the guest's /boot has the file system %s, which is not supported", v.kind).WithHint(useCompat)
		}
		return append(l, mountPoint{"boot", v, subvolumeOf(options)}), nil
	}
	return nil, fault.New(fault.NotFound, "the guest's /boot is on %s, which does not exist on its disks", spec).WithHint(useCompat)
}

// subvolumeOf returns the subvolume in the options of a mount; empty if none exists.
func subvolumeOf(options string) string {
	for option := range strings.SplitSeq(options, ",") {
		if name, ok := strings.CutPrefix(option, "subvol="); ok {
			return strings.Trim(name, "/")
		}
	}
	return ""
}

// openAll opens the file systems of the layout in this process, which supports ext2, ext3 and ext4. The
// error for others is fault.Unsupported.
func (l layout) openAll(now func() time.Time) (tree, error) {
	var out tree
	for _, p := range l {
		if !p.volume.isExt() {
			return nil, fault.New(fault.Unsupported, "%s of the guest is %s on %s, which requires an appliance", p.displayName(), p.volume.kind, p.volume.displayName()).WithHint(useCompat)
		}
		fs, err := extwrite.Open(p.volume.files, now)
		if err != nil {
			return nil, fmt.Errorf("%s of the guest, %s on %s: %w", p.displayName(), p.volume.kind, p.volume.displayName(), err)
		}
		out = append(out, mount{p.path, fs})
	}
	return out, nil
}

// displayName returns "the root" or "the /boot", for messages.
func (p mountPoint) displayName() string {
	if p.path == "" {
		return "the root"
	}
	return "the /" + p.path
}
