package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A program is a command, or the plugin of nbdkit, that is released.
type program struct {
	name    string // name of the command, the packages and the image
	summary string // one line for lists of packages
	text    string // description in packages
	plugin  bool   // it is the plugin of nbdkit, a C shared library
}

// command returns the name of the program's folder in cmd.
func (p program) command() string {
	if p.plugin {
		return "nbdkit-nfc-plugin"
	}
	return p.name
}

// programs are all released programs.
var programs = []program{
	{
		"decamp", "migrate virtual machines from VMware to KVM",
		"decamp migrates virtual machines from VMware ESXi and vCenter to libvirt, Proxmox VE,\nKubeVirt, OpenStack or a folder of images. It verifies every image that it writes.", false,
	},
	{
		"decamp-lab", "emulated ESXi host and vCenter to try decamp",
		"decamp-lab runs an emulated ESXi host or vCenter with the disks of its VMs, to try\ndecamp and to test programs that use the vSphere API.", false,
	},
	{
		"nbdkit-plugin-nfc", "nbdkit plugin that reads disks of VMware ESXi and vCenter",
		"The plugin nfc of nbdkit serves a disk of a VM on VMware ESXi or vCenter, without\nVDDK. virt-v2v -it nfc and Forklift use it.", true,
	},
}

// pluginFile is the name of the plugin's file.
const pluginFile = "nbdkit-nfc-plugin.so"

// A file is a file of archives and packages.
type file struct {
	archived  string      // path in the archive; empty if the archive does not contain it
	installed string      // absolute path in packages and images; empty if they do not contain it
	mode      fs.FileMode // permissions
	content   []byte      // content
}

// binaryFile returns the executable of a program, or the plugin. installedIn changes its folder for a format.
func binaryFile(p program, content []byte) file {
	if p.plugin {
		return file{pluginFile, "/usr/lib/nbdkit/plugins/" + pluginFile, 0o644, content}
	}
	return file{p.name, "/usr/bin/" + p.name, 0o755, content}
}

// collectFiles returns all files of a program except the executable.
func (r *release) collectFiles(p program, in *inputs) ([]file, error) {
	doc := "/usr/share/doc/" + p.name + "/"
	files := []file{{"THIRD-PARTY-LICENSES.txt", doc + "THIRD-PARTY-LICENSES.txt", 0o644, formatLicences(in.modules[p.name])}}
	for _, name := range []string{"LICENSE", "NOTICE", "README.md", "CHANGELOG.md"} {
		content, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, err
		}
		installed := doc + name
		if name == "LICENSE" {
			installed = doc + "copyright" // Debian's policy
		}
		files = append(files, file{name, installed, 0o644, content})
	}
	pages, err := r.readManPages(p)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		section := "man" + strings.TrimPrefix(path.Ext(name), ".")
		files = append(files,
			file{path.Join("man", section, name), "", 0o644, pages[name]},
			file{"", path.Join("/usr/share/man", section, name+".gz"), 0o644, compressBytes(pages[name])})
	}
	if p.name != "decamp" {
		return files, nil
	}
	for shell, to := range map[string][2]string{
		"bash": {"completions/decamp.bash", "/usr/share/bash-completion/completions/decamp"},
		"zsh":  {"completions/_decamp", "/usr/share/zsh/vendor-completions/_decamp"},
		"fish": {"completions/decamp.fish", "/usr/share/fish/vendor_completions.d/decamp.fish"},
	} {
		files = append(files, file{to[0], to[1], 0o644, in.completions[shell]})
	}
	extra, err := r.readPackagingFiles()
	return append(files, extra...), err
}

// compressBytes returns data in gzip format, without a time.
func compressBytes(data []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = w.Write(data)                                  // a buffer does not fail
	_ = w.Close()
	return b.Bytes()
}

// unitFolders are the folders of systemd's files by the end of their names.
var unitFolders = map[string]string{
	".service": "/usr/lib/systemd/system", ".socket": "/usr/lib/systemd/system", ".target": "/usr/lib/systemd/system", ".timer": "/usr/lib/systemd/system",
	".sysusers.conf": "/usr/lib/sysusers.d", ".tmpfiles.conf": "/usr/lib/tmpfiles.d",
}

// readPackagingFiles returns the files of packaging: those for systemd, the scripts that create accounts, and others that
// users copy. The scripts of the packages themselves are not among them.
func (r *release) readPackagingFiles() ([]file, error) {
	var files []file
	base := filepath.Join(r.root, "packaging")
	err := filepath.WalkDir(base, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(base, name)
		if err != nil || relative == "scripts" {
			return cmp.Or(err, fs.SkipDir)
		}
		if entry.IsDir() {
			return nil
		}
		installed, err := installedPath(relative)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644) // git keeps only the permission to execute
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		files = append(files, file{relative, installed, mode, content})
		return nil
	})
	return files, err
}

// installedPath returns the path at which packages install a file of packaging. A file for systemd with an unknown
// kind is an error.
func installedPath(relative string) (string, error) {
	folder, name := path.Split(relative)
	if path.Clean(folder) != "systemd" {
		return path.Join("/usr/share/decamp", relative), nil
	}
	for end, to := range unitFolders {
		if stem, ok := strings.CutSuffix(name, end); ok {
			return path.Join(to, stem+end[strings.LastIndexByte(end, '.'):]), nil
		}
	}
	return "", fmt.Errorf("packaging/%s: the folder in which it is installed is unknown", relative)
}
