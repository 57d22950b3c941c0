package virtv2v

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// Windows is the system that drivers are for.
type Windows struct {
	Build  int    // 17763
	Arch   string // x86_64, i386 or aarch64; empty: not known
	Server bool
}

// needed are the drivers without which a Windows does not boot from virtio, or has no network there,
// by how their files begin. One of the first two is enough.
var needed = [...]string{"viostor", "vioscsi", "netkvm"}

const driversHint = "get it from https://fedorapeople.org/groups/virt/virtio-win/direct-downloads/stable-virtio/virtio-win.iso, " +
	"or: dnf install virtio-win; then say where it is: --virtio-win /srv/virtio-win.iso"

// CheckDrivers asks that the virtio-win that is named is one, and where the Windows is known, that it
// has drivers for it: before anything is copied for hours.
func (e *Engine) CheckDrivers(w *Windows) error {
	place := e.Drivers()
	if place == "" {
		return fault.New(fault.NotFound, "a Windows needs drivers for virtio, and no virtio-win is named").WithHint(driversHint)
	}
	files, err := driverFiles(place)
	if err != nil {
		return fault.New(fault.KindOf(err), "virtio-win %s: %w", place, err).WithHint(driversHint)
	}
	has := func(driver string, of *Windows) bool {
		return slices.ContainsFunc(files, func(f string) bool {
			return path.Base(f) == driver+".inf" && (of == nil || of.fits(f))
		})
	}
	for _, of := range []*Windows{nil, w} {
		disk := has(needed[0], of) || has(needed[1], of)
		if disk && has(needed[2], of) {
			continue
		}
		what := "a Windows"
		if of != nil {
			what = of.String()
		}
		return fault.New(fault.NotFound, "virtio-win %s has no drivers for %s: viostor or vioscsi, and netkvm", place, what).WithHint(driversHint)
	}
	return nil
}

// String names the folder of virtio-win that is meant.
func (w *Windows) String() string {
	return fmt.Sprintf("build %d, %s (%s)", w.Build, w.Arch, strings.Join(w.folders(), " or "))
}

// fits reports whether a file is in the folders of this Windows and its processor.
func (w *Windows) fits(file string) bool {
	parts := strings.Split(path.Dir(file), "/")
	in := func(names []string) bool {
		return len(names) == 0 || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(parts, n) })
	}
	arch := map[string][]string{"x86_64": {"amd64"}, "i386": {"x86", "i386"}, "aarch64": {"arm64"}}[w.Arch]
	return in(w.folders()) && in(arch)
}

// A driverFolder is what virtio-win calls the drivers for releases from a build on.
type driverFolder struct {
	from           int
	client, server string
}

// driverFolders are in the order of the builds.
var driverFolders = []driverFolder{
	{2600, "xp", "2k3"}, {6000, "2k8", "2k8"}, {7600, "w7", "2k8r2"}, {9200, "w8", "2k12"}, {9600, "w8.1", "2k12r2"},
	{10240, "w10", "2k16"}, {17763, "w10", "2k19"}, {20348, "w10", "2k22"}, {22000, "w11", "2k22"}, {26100, "w11", "2k25"},
}

// folders are the names, the best one first. A release works with the drivers of the one before it,
// as long as both are of Windows 10 or newer. None: the build is not known.
func (w *Windows) folders() (names []string) {
	for _, f := range slices.Backward(driverFolders) {
		name := f.client
		if w.Server {
			name = f.server
		}
		if f.from > w.Build || slices.Contains(names, name) {
			continue
		}
		names = append(names, name)
		if f.from < 17763 {
			break
		}
	}
	return names
}

// driverFiles lists the paths of what is in an ISO image or in a folder, in lower case.
func driverFiles(place string) (files []string, err error) {
	info, err := os.Stat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.Wrap(fault.NotFound, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fault.Wrap(fault.Denied, err)
	case err != nil:
		return nil, err
	case info.IsDir():
		return folderFiles(place)
	}
	f, err := os.Open(place)
	if err != nil {
		return nil, fault.Wrap(fault.Denied, err)
	}
	defer f.Close()
	return isoFiles(f)
}

func folderFiles(place string) (files []string, err error) {
	err = filepath.WalkDir(place, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if len(files) == maxFiles {
			return fault.New(fault.Unsupported, "it has more than %d files", maxFiles)
		}
		rest, err := filepath.Rel(place, p)
		files = append(files, strings.ToLower(filepath.ToSlash(rest)))
		return err
	})
	return files, err
}
