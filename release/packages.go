package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

const (
	homepage   = "https://github.com/decamp/decamp"
	maintainer = "The decamp authors <packages@decamp.invalid>"
)

// writePackages writes the deb and the rpm package of a program.
func (w *artefacts) writePackages(p program, arch string, content []file) {
	if w.err != nil {
		return
	}
	temporary, err := os.MkdirTemp("", "decamp-package-")
	if err != nil {
		w.err = err
		return
	}
	defer os.RemoveAll(temporary)
	for _, format := range []string{"deb", "rpm"} {
		info, err := w.packageInfo(p, arch, format, content, temporary)
		if err != nil {
			w.err = err
			return
		}
		packager, err := nfpm.Get(format)
		if err != nil {
			w.err = err
			return
		}
		w.createFile(packager.ConventionalFileName(info), func(out io.Writer) error { return packager.Package(info, out) })
	}
}

// ownsFolder reports whether only the package of a program has files in a folder.
func ownsFolder(p program, folder string) bool {
	for _, own := range []string{"/usr/share/doc/" + p.name, "/usr/share/" + p.name} {
		if folder == own || strings.HasPrefix(folder, own+"/") {
			return true
		}
	}
	return false
}

// multiarch are Debian's names of the architectures.
var multiarch = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// installedIn returns the path of a file in the packages of a format.
func installedIn(format, arch, installed string) string {
	folder := "/usr/lib/" + multiarch[arch] + "/nbdkit/"
	if format == "rpm" {
		installed = strings.Replace(installed, "/zsh/vendor-completions/", "/zsh/site-functions/", 1)
		folder = "/usr/lib64/nbdkit/"
	}
	return strings.Replace(installed, "/usr/lib/nbdkit/", folder, 1)
}

// packageInfo returns the description of a package. It writes the files into a temporary folder, because the
// library reads paths.
func (r *release) packageInfo(p program, arch, format string, content []file, temporary string) (*nfpm.Info, error) {
	info := &nfpm.Info{
		Name: p.name, Arch: arch, Platform: "linux", Version: r.version, Release: "1", Section: "admin", Priority: "optional",
		Maintainer: maintainer, Description: p.summary + "\n" + p.text, Vendor: "decamp", Homepage: homepage, License: "Apache-2.0",
		MTime: r.date, DisableGlobbing: true,
	}
	info.RPM.BuildHost, info.RPM.Summary, info.RPM.Group = "decamp", p.summary, "Applications/System"
	if p.plugin {
		info.Depends = []string{"nbdkit (>= 1.32)", "libc6 (>= 2.34)"}
		if format == "rpm" {
			info.Depends = []string{"nbdkit-server >= 1.32", "libc.so.6(GLIBC_2.34)(64bit)"}
		}
	}
	if p.name == "decamp" {
		info.Suggests = []string{"qemu-system-x86", "openssh-client"}
		if format == "rpm" {
			info.Suggests = []string{"qemu-kvm", "openssh-clients"}
		}
		script := func(name string) string { return filepath.Join(r.root, "packaging", "scripts", name) }
		info.Scripts = nfpm.Scripts{PostInstall: script("postinstall.sh"), PreRemove: script("preremove.sh"), PostRemove: script("postremove.sh")}
	}
	owned := map[string]bool{} // folders that rpm removes with the package
	for i, f := range content {
		if f.installed == "" {
			continue
		}
		for folder := path.Dir(f.installed); ownsFolder(p, folder) && !owned[folder]; folder = path.Dir(folder) {
			owned[folder] = true
			info.Contents = append(info.Contents, &files.Content{Destination: folder, Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755, Owner: "root", Group: "root", MTime: r.date}})
		}
		source := filepath.Join(temporary, fmt.Sprint(format, i))
		if err := os.WriteFile(source, f.content, 0o600); err != nil {
			return nil, err
		}
		info.Contents = append(info.Contents, &files.Content{
			Source: source, Destination: installedIn(format, arch, f.installed),
			FileInfo: &files.ContentFileInfo{Mode: f.mode, Owner: "root", Group: "root", MTime: r.date},
		})
	}
	return nfpm.WithDefaults(info), nil
}
