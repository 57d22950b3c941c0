package convert

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/convert/overlay"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/extwrite"
)

// A Disk is one of the guest's disks, and what guest.Detect found on it.
type Disk struct {
	Overlay *overlay.Overlay
	Report  guest.Report
}

// A volume is a partition, or a disk without table.
type volume struct {
	names []string // as the guest may call it: sda1, hda1
	fs    guest.FileSystem
	uuid  string
	slice *overlay.Slice
}

// volumes lists what the disks hold. The guest's names follow the disks' order.
func volumes(ctx context.Context, disks []Disk) (out []volume, err error) {
	for i, d := range disks {
		parts := d.Report.Partitions
		if d.Report.Table == guest.None {
			parts = []guest.Partition{{Len: d.Overlay.Size(), FileSystem: d.Report.WholeDisk}}
		}
		for _, p := range parts {
			v := volume{names: deviceNames(i, len(disks), p.Number), fs: p.FileSystem, uuid: p.FSUUID, slice: d.Overlay.Slice(ctx, p.Off, p.Len)}
			if v.uuid == "" {
				if v.uuid, err = v.readUUID(); err != nil {
					return nil, err
				}
			}
			out = append(out, v)
		}
	}
	return out, nil
}

// deviceNames returns what a partition of disk i is called. IDE disks are named by their place
// on a cable; which that was is only sure for a disk that is alone.
func deviceNames(i, disks, partition int) []string {
	number := ""
	if partition > 0 {
		number = fmt.Sprint(partition)
	}
	if i >= 26 {
		return nil
	}
	names := []string{"sd" + string(rune('a'+i)) + number}
	if disks == 1 {
		names = append(names, "hda"+number)
	}
	return names
}

// readUUID reads the UUID of what guest.Detect gives none for, as blkid spells it; empty if
// there is none.
func (v volume) readUUID() (string, error) {
	place := map[guest.FileSystem]struct{ off, n int64 }{
		guest.Ext2: {0x468, 16}, guest.Ext3: {0x468, 16}, guest.Ext4: {0x468, 16}, guest.Swap: {0x40c, 16}, guest.Btrfs: {0x10020, 16}, guest.LUKS: {0xa8, 36},
	}[v.fs]
	if place.n == 0 || v.slice.Size() < place.off+place.n {
		return "", nil
	}
	p := make([]byte, place.n)
	if _, err := v.slice.ReadAt(p, place.off); err != nil {
		return "", err
	}
	if v.fs == guest.LUKS {
		return strings.TrimRight(string(p), "\x00"), nil
	}
	u := hex.EncodeToString(p)
	if strings.Trim(u, "0") == "" {
		return "", nil
	}
	return u[:8] + "-" + u[8:12] + "-" + u[12:16] + "-" + u[16:20] + "-" + u[20:], nil
}

func (v volume) isExt() bool { return v.fs == guest.Ext2 || v.fs == guest.Ext3 || v.fs == guest.Ext4 }

// is reports whether the guest means v by what an fstab has: a device, a UUID, by a link too.
func (v volume) is(spec string) bool {
	if uuid, ok := strings.CutPrefix(spec, "UUID="); ok {
		return v.uuid != "" && strings.EqualFold(strings.Trim(uuid, `"`), v.uuid)
	}
	if uuid, ok := strings.CutPrefix(spec, "/dev/disk/by-uuid/"); ok {
		return v.uuid != "" && strings.EqualFold(uuid, v.uuid)
	}
	for _, name := range v.names {
		if spec == "/dev/"+name {
			return true
		}
	}
	return false
}

// open finds the root file system and what its fstab mounts below it that matters: /boot.
func open(vols []volume, now func() time.Time) (tree, error) {
	var t tree
	var refused error // may be the root's
	for _, v := range vols {
		if !v.isExt() {
			continue
		}
		fs, err := extwrite.Open(v.slice, now)
		if err != nil {
			refused = errors.Join(refused, fmt.Errorf("%s on %s: %w", v.fs, strings.Join(v.names, " or "), err))
			continue
		}
		if found := (tree{{fs: fs}}); found.has("etc/fstab") && (found.has("lib/modules") || found.has("sbin/init")) {
			t = append(t, found...)
		}
	}
	switch {
	case len(t) == 0 && refused != nil:
		return nil, refused
	case len(t) == 0:
		return nil, fault.New(fault.Unsupported, "no disk has a root file system of Linux on ext2, ext3 or ext4: %s", kinds(vols)).
			WithHint("use the compat profile, which changes nothing in the guest")
	case len(t) == 1:
		return t.withBoot(vols, now)
	}
	return nil, fault.New(fault.Unsupported, "%d partitions look like the root of a Linux", len(t)).
		WithHint("use the compat profile, which changes nothing in the guest")
}

// kinds names what there is instead.
func kinds(vols []volume) string {
	var names []string
	for _, v := range vols {
		if v.fs != guest.Unknown {
			names = append(names, string(v.fs))
		}
	}
	if names == nil {
		return "nothing that is known"
	}
	return strings.Join(names, ", ")
}

// withBoot adds the file system that the guest mounts at /boot, if it is one of its own.
func (t tree) withBoot(vols []volume, now func() time.Time) (tree, error) {
	text, _, err := t.text("etc/fstab")
	if err != nil {
		return nil, err
	}
	spec := ""
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 2 && f[0][0] != '#' && f[1] == "/boot" {
			spec = f[0]
		}
	}
	if spec == "" {
		return t, nil
	}
	for _, v := range vols {
		if !v.is(spec) {
			continue
		}
		if !v.isExt() {
			return nil, fault.New(fault.Unsupported, "the guest's /boot is %s", v.fs).WithHint("use the compat profile, which changes nothing in the guest")
		}
		fs, err := extwrite.Open(v.slice, now)
		if err != nil {
			return nil, fmt.Errorf("the guest's /boot: %w", err)
		}
		return append(t, mount{"boot", fs}), nil
	}
	return nil, fault.New(fault.NotFound, "the guest's /boot is on %s, which is not found", spec).
		WithHint("use the compat profile, which changes nothing in the guest")
}
