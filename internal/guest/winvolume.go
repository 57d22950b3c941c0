package guest

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/decamp/decamp/internal/guest/ntfs"
	"github.com/decamp/decamp/internal/guest/tree"
)

// examineWindows examines what Windows may have stored on a volume: a system, its loader, or
// encryption. number is the partition, 0 for the whole disk, and kind the type of the partition.
func (d *detector) examineWindows(number int, kind string, v *volume, w *window) {
	switch {
	case v.kind == NTFS:
		d.examineNTFS(number, kind, w)
	case v.kind == BitLocker:
		d.warnBitLocker(number, w)
	case v.kind == FAT && v.tree != nil:
		d.findBootFiles(v.tree)
	}
}

// examineNTFS examines an NTFS volume: its state, its boot files, and a Windows on it. Only the first
// Windows of a disk is described.
func (d *detector) examineNTFS(number int, kind string, w *window) {
	v, err := ntfs.Open(w)
	if err != nil {
		d.warnUnreadable(NTFS, w, err)
		return
	}
	files, err := v.Tree()
	if err != nil {
		d.warnUnreadable(NTFS, w, err)
		return
	}
	d.warnNTFSState(number, v, w)
	d.findBootFiles(files)
	hibernated := d.isHibernated(number, files)
	// A data volume has no registry.
	if d.report.Windows != nil || !fileExists(files, softwareHive) {
		return
	}
	s := &winSystem{d: d, files: files, out: &Windows{Partition: number, Hibernated: hibernated, Dynamic: isDynamic(kind)}}
	if s.out.Usage, err = v.Usage(); err != nil {
		d.warnUnreadable(NTFS, w, err)
	}
	s.readRegistry()
	if d.machine.budget.Err() == nil { // otherwise the description may be incomplete
		d.addWindows(s)
	}
}

// warnUnreadable warns about a file system with a valid magic number that cannot be read.
func (d *detector) warnUnreadable(kind FileSystem, w *window, err error) {
	d.warn("file-system", "the %s file system at byte %d cannot be read: %v", kind, w.off, err)
}

// addWindows adds the description of a Windows to the report, with its verdict and warnings.
func (d *detector) addWindows(s *winSystem) {
	d.report.Windows = s.out
	d.report.OS = s.os
	d.report.Verdict = s.out.describeVerdict(s.os)
	w := s.out
	if w.FastStartup && !w.Hibernated {
		d.warn("fast-startup", "Windows hibernates at shutdown (fast startup) and would resume on other hardware; turn that off with powercfg /h off")
	}
	for _, a := range w.Static {
		mac := a.MAC
		if mac == "" {
			mac = "missing in the registry"
		}
		d.warn("static-address", "%s has the fixed address %s (MAC of the card: %s): on another card model Windows uses DHCP",
			a.displayName(), a.Addresses[0], mac)
	}
}

// displayName returns the quoted name of the connection, or the GUID of an interface without a name.
func (a StaticAddress) displayName() string {
	if a.Name != "" {
		return fmt.Sprintf("%q", a.Name)
	}
	return a.Interface
}

// warnNTFSState warns about a volume that is dirty or whose journal is open.
func (d *detector) warnNTFSState(number int, v *ntfs.Volume, w *window) {
	info, err := v.Info()
	if err != nil {
		d.warnUnreadable(NTFS, w, err)
	}
	if info.Dirty {
		d.warn("ntfs-dirty", "%s is marked dirty: Windows checks it when it starts; run chkdsk /f before the migration", partitionName(number))
	}
	switch closed, err := v.LogClosed(); {
	case err != nil:
		d.warnUnreadable(NTFS, w, err)
	case !closed:
		d.warn("ntfs-journal", "the NTFS journal of %s is open: the guest was not shut down, and decamp does not read its last changes", partitionName(number))
	}
}

// partitionName returns the name of a partition for messages; 0 is the whole disk.
func partitionName(number int) string {
	if number == 0 {
		return "the disk"
	}
	return fmt.Sprintf("partition %d", number)
}

// findBootFiles records whether a volume contains the configuration of Windows' boot loader.
func (d *detector) findBootFiles(files tree.FS) {
	for _, path := range []string{"EFI/Microsoft/Boot/BCD", "Boot/BCD"} {
		if fileExists(files, path) {
			d.report.Boot.BCD = true
		}
	}
}

// isHibernated reports whether hiberfil.sys contains a system to resume, and warns about it. The
// file begins with HIBR while the system is hibernated, WAKE or zeros when it has resumed, and RSTR
// after a resume that did not complete.
func (d *detector) isHibernated(number int, files tree.FS) bool {
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
		d.warn("hibernated", "the guest on %s is hibernated (or shut down with fast startup): it would resume on other hardware; "+
			"start it, and shut it down completely with powercfg /h off", partitionName(number))
		return true
	}
	return false
}

// fileExists reports whether there is a file or folder at path. It returns false if a folder of the
// path cannot be read.
func fileExists(files tree.FS, path string) bool {
	_, err := files.Open(path)
	return err == nil
}

// isMissing reports whether err means that the object does not exist.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
