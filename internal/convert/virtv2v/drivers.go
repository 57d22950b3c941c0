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

// Windows identifies the release that drivers are required for. The zero Windows is unknown.
type Windows struct {
	Build  int    // build number: 17763; 0 if unknown
	Arch   string // x86_64, i386 or aarch64; empty if unknown
	Server bool   // edition for servers

	// OrNewer means that Build is a minimum: the guest may have been upgraded in place after its type was
	// configured.
	OrNewer bool
}

const (
	// hint to install virtio-win
	driversHint = "download it from https://fedorapeople.org/groups/virt/virtio-win/direct-downloads/stable-virtio/virtio-win.iso, " +
		"or: dnf install virtio-win; then set its path: --virtio-win /srv/virtio-win.iso"
	// hint to install rhsrvany
	toolsHint = "dnf install mingw-srvany-redistributable; Debian has no such package: copy rhsrvany.exe of that package, or of github.com/rwmjones/rhsrvany, " +
		"to /usr/share/virt-tools, or to the folder of $VIRT_TOOLS_DATA_DIR"
)

// CheckDrivers returns an error unless the configured virtio-win is readable and has drivers for the
// Windows at the paths of virt-v2v, and virt-v2v has its helper program for Windows. It is called
// before the copy, which takes hours.
func (e *Engine) CheckDrivers(t Tool, w *Windows) error {
	place := e.Drivers()
	if place == "" {
		return fault.New(fault.NotFound, "Windows requires drivers for virtio, and the path of virtio-win is not set").WithHint(driversHint)
	}
	files, err := driverFiles(place)
	if err != nil {
		return fault.New(fault.KindOf(err), "virtio-win %s: %w", place, err).WithHint(driversHint)
	}
	// The zero Windows checks for drivers of any release, which gives a better message.
	for _, of := range []*Windows{{}, w} {
		if lacks := t.missingDrivers(files, of); lacks != "" {
			return fault.New(fault.NotFound, "virtio-win %s has no drivers for %v: %s", place, of, lacks).WithHint(driversHint)
		}
	}
	return e.checkTools()
}

// missingDrivers returns a phrase about the drivers that the files of a virtio-win lack for a Windows;
// empty if none are missing. Without them a Windows does not boot from virtio, or has no network.
// virt-v2v itself only warns and converts the guest to IDE.
func (t Tool) missingDrivers(files []string, w *Windows) string {
	has := func(name string) bool {
		return slices.ContainsFunc(files, func(f string) bool { return path.Base(f) == name && w.matchesPath(f) })
	}
	switch scsi := t.Supports(optionBlockDriver) && has("vioscsi.sys"); {
	case scsi || has("viostor.sys"):
	case t.Supports(optionBlockDriver):
		return "neither viostor.sys nor vioscsi.sys"
	default:
		return "no viostor.sys, which this version of virt-v2v requires"
	}
	if !has("netkvm.inf") {
		return "no netkvm.inf"
	}
	return ""
}

// checkTools fails if the program is missing that virt-v2v copies to each Windows, to run scripts at
// the first boot.
func (e *Engine) checkTools() error {
	folders := []string{"/usr/share/virt-tools", "/usr/local/share/virt-tools"}
	if named := e.getenv("VIRT_TOOLS_DATA_DIR"); named != "" {
		folders = []string{named}
	}
	for _, folder := range folders {
		for _, name := range []string{"rhsrvany.exe", "pvvxsvc.exe"} {
			if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
				return nil
			}
		}
	}
	return fault.New(fault.NotFound, "virt-v2v has no rhsrvany.exe in %s, which it requires to run programs at the first boot of Windows", folders[0]).WithHint(toolsHint)
}

// String returns the release with its folders of virtio-win, for messages.
func (w *Windows) String() string {
	if *w == (Windows{}) {
		return "Windows"
	}
	text := fmt.Sprintf("build %d", w.Build)
	if w.OrNewer {
		text += " or newer"
	}
	return fmt.Sprintf("%s, %s (%s)", text, w.Arch, strings.Join(w.driverFolderNames(), " or "))
}

// matchesPath reports whether a file is in the folders of this release and processor.
func (w *Windows) matchesPath(file string) bool {
	parts := strings.Split(path.Dir(file), "/")
	in := func(names []string) bool {
		return len(names) == 0 || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(parts, n) })
	}
	arch := map[string][]string{"x86_64": {"amd64"}, "i386": {"x86", "i386"}, "aarch64": {"arm64"}}[w.Arch]
	return in(w.driverFolderNames()) && in(arch)
}

// A driverFolder contains the folders of virtio-win for releases from a build on. virt-v2v uses only
// the folder of the release itself, although Windows would accept drivers of an earlier one.
type driverFolder struct {
	from           int    // first build
	client, server string // folders for both editions
}

// driverFolders is in the order of the builds. It corresponds to virt-v2v 2.2 to 2.12:
// windows_virtio.ml, and inject_virtio_win.ml later.
var driverFolders = []driverFolder{
	{2600, "xp", "2k3"}, {3790, "2k3", "2k3"}, {6000, "2k8", "2k8"}, {7600, "w7", "2k8r2"}, {9200, "w8", "2k12"}, {9600, "w8.1", "2k12r2"},
	{10240, "w10", "2k16"}, {17763, "w10", "2k19"}, {20348, "w10", "2k22"}, {22000, "w11", "2k22"}, {26100, "w11", "2k25"},
}

// driverFolderNames returns the folders in which virt-v2v may search; none if the build is unknown.
func (w *Windows) driverFolderNames() (names []string) {
	for i, f := range driverFolders {
		// next means that a later folder also includes the build.
		next := i+1 < len(driverFolders) && driverFolders[i+1].from <= w.Build
		if f.from > w.Build && !w.OrNewer || next || w.Build == 0 {
			continue
		}
		name := f.client
		if w.Server {
			name = f.server
		}
		names = append(names, name)
		switch {
		case name == "2k8" && !w.Server:
			names = append(names, "vista")
		case name == "2k25":
			names = append(names, "2k16") // older releases of libguestfs use this folder
		}
	}
	return slices.Compact(names)
}

// driverFiles returns the paths of the files in an ISO image or a folder, in lower case.
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

// folderFiles returns the paths of the files below a folder, in lower case. It fails if there are more
// than maxFiles.
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
