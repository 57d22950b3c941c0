package guest

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/decamp/decamp/internal/guest/ntfs"
	"github.com/decamp/decamp/internal/guest/tree"
)

// windows looks for what Windows leaves on a slice of the disk.
// number is its partition's, 0 is the whole disk, and kind the partition's type.
func (d *detector) windows(number int, kind string, v *volume, w *window) {
	switch {
	case v.kind == NTFS:
		d.ntfsVolume(number, kind, w)
	case v.kind == BitLocker:
		d.bitLocker(number, w)
	case v.kind == FAT && v.tree != nil:
		d.bootFiles(v.tree)
	}
}

// ntfsVolume examines an NTFS volume: its state, its boot files, and a Windows on it.
func (d *detector) ntfsVolume(number int, kind string, w *window) {
	v, err := ntfs.Open(w)
	if err != nil {
		d.unreadable(NTFS, w, err)
		return
	}
	files, err := v.Tree()
	if err != nil {
		d.unreadable(NTFS, w, err)
		return
	}
	d.ntfsState(number, v, w)
	d.bootFiles(files)
	hibernated := d.hibernated(number, files)
	if d.report.Windows != nil || !exists(files, softwareHive) {
		return
	}
	s := &winSystem{d: d, files: files, out: &Windows{Partition: number, Hibernated: hibernated, Dynamic: isDynamic(kind)}}
	if s.out.Usage, err = v.Usage(); err != nil {
		d.unreadable(NTFS, w, err)
	}
	s.read()
	if d.machine.budget.Err() == nil { // after the end of the budget missing parts are unknown
		d.adopt(s)
	}
}

// unreadable warns of a file system that looks like one and does not read like it.
func (d *detector) unreadable(kind FileSystem, w *window, err error) {
	d.warn("file-system", "the %s file system at byte %d cannot be read: %v", kind, w.off, err)
}

// adopt copies the description of a Windows.
func (d *detector) adopt(s *winSystem) {
	d.report.Windows = s.out
	d.report.OS = s.os
	d.report.Verdict = s.out.verdict(s.os)
	w := s.out
	if w.FastStartup && !w.Hibernated {
		d.warn("fast-startup", "Windows shuts down by hibernating (fast startup): it would wake up on other hardware; turn that off with powercfg /h off")
	}
	for _, a := range w.Static {
		mac := a.MAC
		if mac == "" {
			mac = "that the registry does not tell"
		}
		d.warn("static-address", "%s has the fixed address %s, on the card with MAC %s: with another model of card Windows starts with DHCP",
			a.label(), a.Addresses[0], mac)
	}
}

// label is what people call the interface.
func (a StaticAddress) label() string {
	if a.Name != "" {
		return fmt.Sprintf("%q", a.Name)
	}
	return a.Interface
}

// ntfsState warns of what keeps a volume from being changed, or makes Windows check it.
func (d *detector) ntfsState(number int, v *ntfs.Volume, w *window) {
	info, err := v.Info()
	if err != nil {
		d.unreadable(NTFS, w, err)
	}
	if info.Dirty {
		d.warn("ntfs-dirty", "%s is marked dirty: Windows checks it when it starts; run chkdsk /f before the move", place(number))
	}
	switch closed, err := v.LogClosed(); {
	case err != nil:
		d.unreadable(NTFS, w, err)
	case !closed:
		d.warn("ntfs-journal", "the NTFS journal of %s is open: the guest was not shut down, and its last changes are not seen", place(number))
	}
}

// place names a partition.
func place(number int) string {
	if number == 0 {
		return "the disk"
	}
	return fmt.Sprintf("partition %d", number)
}

// bootFiles notes where Windows' boot loader has its configuration.
func (d *detector) bootFiles(files tree.FS) {
	for _, path := range []string{"EFI/Microsoft/Boot/BCD", "Boot/BCD"} {
		if exists(files, path) {
			d.report.Boot.BCD = true
		}
	}
}

// hibernated reads the mark of hiberfil.sys. It is HIBR while the guest sleeps in there,
// WAKE or zeros once it is awake, and RSTR while it wakes up, which did not end well.
func (d *detector) hibernated(number int, files tree.FS) bool {
	f, err := files.Open("hiberfil.sys")
	if err != nil {
		return false
	}
	mark := make([]byte, 4)
	if n, _ := f.ReadAt(mark, 0); n < len(mark) {
		return false
	}
	switch string(mark) {
	case "HIBR", "hibr", "RSTR", "rstr":
		d.warn("hibernated", "the guest on %s is hibernated (or shut down with fast startup): it would wake up on other hardware; "+
			"start it, and shut it down in full with powercfg /h off", place(number))
		return true
	}
	return false
}

// exists reports whether there is a file or folder at path. What cannot be read is not
// there.
func exists(files tree.FS, path string) bool {
	_, err := files.Open(path)
	return err == nil
}

// missing reports whether err means that the object does not exist.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
