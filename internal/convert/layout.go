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

const useCompat = "use the compat profile, which changes nothing in the guest"

// A place is where a part of the guest's files is: "" the root, "boot".
type place struct {
	at        string
	on        volume
	subvolume string // btrfs subvolume; empty is the default one
}

// A layout is the places that a conversion writes to, the root first.
type layout []place

// find looks for the root file system, by reading only, and for what its fstab mounts below it
// that matters: /boot.
func find(vols []volume) (layout, error) {
	var roots []place
	var fstab string
	var unread error // may be the root's
	for _, v := range vols {
		files, err := guest.OpenTree(v.kind, v.files)
		if err != nil {
			unread = errors.Join(unread, fmt.Errorf("%s on %s: %w", v.kind, v.name(), v.why(err)))
		}
		if err != nil || files == nil {
			continue
		}
		sub, ok := rootIn(files, v.kind)
		if err := v.files.Budget().Err(); err != nil {
			return nil, fmt.Errorf("%s on %s: %w", v.kind, v.name(), err)
		}
		var limit *budget.Error
		if _, err := files.Open("etc"); !ok && errors.As(err, &limit) {
			unread = errors.Join(unread, fmt.Errorf("%s on %s: %w", v.kind, v.name(), err))
		}
		if ok {
			roots = append(roots, place{on: v, subvolume: sub})
			text, err := files.ReadFile(sub+"/etc/fstab", maxText)
			if err != nil {
				return nil, fmt.Errorf("etc/fstab on %s: %w", v.name(), err)
			}
			fstab = string(text)
		}
	}
	switch {
	case len(roots) == 0 && unread != nil:
		return nil, fault.New(fault.Unsupported, "%w", unread).WithHint(useCompat)
	case len(roots) == 0:
		return nil, fault.New(fault.Unsupported, "no disk has a root file system of Linux that can be read: %s", kinds(vols)).WithHint(useCompat)
	case len(roots) > 1:
		return nil, fault.New(fault.Unsupported, "%d partitions look like the root of a Linux", len(roots)).WithHint(useCompat)
	}
	return layout(roots).withBoot(fstab, vols)
}

// why returns why a file system cannot be read. Of ext who writes it knows features by name.
func (v volume) why(err error) error {
	if v.isExt() {
		if _, refused := extwrite.Open(v.files, time.Now); refused != nil {
			return refused
		}
	}
	return err
}

// rootIn reports whether files hold a Linux, and in which subvolume.
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

// kinds names what there is instead.
func kinds(vols []volume) string {
	var names []string
	for _, v := range vols {
		if v.kind != guest.Unknown {
			names = append(names, string(v.kind))
		}
	}
	if names == nil {
		return "nothing that is known"
	}
	return strings.Join(names, ", ")
}

// withBoot adds the file system that fstab mounts at /boot, if it is separate.
func (l layout) withBoot(fstab string, vols []volume) (layout, error) {
	var spec, options string
	for line := range strings.Lines(fstab) {
		if f := strings.Fields(line); len(f) >= 2 && f[0][0] != '#' && f[1] == "/boot" {
			spec, options = f[0], strings.Join(f[3:min(4, len(f))], "")
		}
	}
	if spec == "" {
		return l, nil
	}
	for _, v := range vols {
		if !v.is(spec) {
			continue
		}
		if !v.isExt() && v.kind != guest.XFS && v.kind != guest.Btrfs {
			return nil, fault.New(fault.Unsupported, "the guest's /boot is %s", v.kind).WithHint(useCompat)
		}
		return append(l, place{"boot", v, subvolumeOf(options)}), nil
	}
	return nil, fault.New(fault.NotFound, "the guest's /boot is on %s, which is not found", spec).WithHint(useCompat)
}

// subvolumeOf returns the subvolume that the options of a mount name.
func subvolumeOf(options string) string {
	for option := range strings.SplitSeq(options, ",") {
		if name, ok := strings.CutPrefix(option, "subvol="); ok {
			return strings.Trim(name, "/")
		}
	}
	return ""
}

// open opens the layout's file systems in this process, which can write ext2, ext3 and ext4.
func (l layout) open(now func() time.Time) (tree, error) {
	var out tree
	for _, p := range l {
		if !p.on.isExt() {
			return nil, fault.New(fault.Unsupported, "%s of the guest is %s on %s, which takes an appliance to write", p.title(), p.on.kind, p.on.name()).WithHint(useCompat)
		}
		fs, err := extwrite.Open(p.on.files, now)
		if err != nil {
			return nil, fmt.Errorf("%s of the guest, %s on %s: %w", p.title(), p.on.kind, p.on.name(), err)
		}
		out = append(out, mount{p.at, fs})
	}
	return out, nil
}

func (p place) title() string {
	if p.at == "" {
		return "the root"
	}
	return "the /" + p.at
}
