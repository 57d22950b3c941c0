package convert

import (
	"slices"
	"strings"
)

// A kernel is an installed kernel for which the guest has modules and an initramfs.
type kernel struct {
	release   string   // release: "6.1.0-31-amd64"
	modules   string   // folder of the modules: "lib/modules/6.1.0-31-amd64"
	initramfs []string // paths of its initramfs; some distributions have a second one as a fallback
}

// listKernels returns the guest's kernels. A kernel without initramfs adds a note, because nothing can
// be appended.
func (t tree) listKernels(r *Result) (out []kernel) {
	inBoot := t.listNames("boot")
	for _, release := range t.listNames("lib/modules") {
		k := kernel{release: release, modules: "lib/modules/" + release}
		// A removed kernel may leave modules that do not belong to a package.
		if !t.hasPath(k.modules + "/modules.dep") {
			continue // left over from a kernel that was removed
		}
		k.initramfs = t.initramfsOf(k, inBoot)
		if k.initramfs == nil {
			r.addNote("kernel %s has no initramfs in /boot: it boots only if the drivers are built in", release)
			continue
		}
		out = append(out, k)
	}
	return out
}

// initramfsOf returns the paths of a kernel's initramfs by the conventions of distributions: Debian,
// Fedora and SUSE name it by the release, Arch by the package, and BLS has a folder for each. Those for
// crash dumps have other names and stay unchanged.
func (t tree) initramfsOf(k kernel, inBoot []string) (paths []string) {
	names := []string{"initrd.img-" + k.release, "initramfs-" + k.release + ".img", "initrd-" + k.release, "initramfs-" + k.release}
	if pkg, there, err := t.readText(k.modules + "/pkgbase"); there && err == nil {
		pkg = strings.TrimSpace(pkg)
		names = append(names, "initramfs-"+pkg+".img", "initramfs-"+pkg+"-fallback.img")
	}
	for _, name := range inBoot {
		if slices.Contains(names, name) {
			paths = append(paths, "boot/"+name)
			continue
		}
		// BLS type 1 with a machine ID: /boot/MACHINE-ID/RELEASE/initrd.
		for _, inner := range []string{"initrd", "initrd.img"} {
			if path := "boot/" + name + "/" + k.release + "/" + inner; t.hasPath(path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}
