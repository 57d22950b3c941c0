package convert

import (
	"slices"
	"strings"
)

// A kernel is one that the guest has modules and an initramfs of.
type kernel struct {
	release   string // "6.1.0-31-amd64"
	modules   string // "lib/modules/6.1.0-31-amd64"
	initramfs []string
}

// kernels lists the guest's kernels. One without initramfs is noted: nothing can be added to it.
func (t tree) kernels(r *Result) (out []kernel) {
	inBoot := t.names("boot")
	for _, release := range t.names("lib/modules") {
		k := kernel{release: release, modules: "lib/modules/" + release}
		if !t.has(k.modules + "/modules.dep") {
			continue // left over from a kernel that was removed
		}
		k.initramfs = t.initramfsOf(k, inBoot)
		if k.initramfs == nil {
			r.note("kernel %s has no initramfs in /boot: it boots only if it has the drivers in itself", release)
			continue
		}
		out = append(out, k)
	}
	return out
}

// initramfsOf returns the paths of a kernel's initramfs in the distributions: Debian, Fedora and SUSE
// by its release; Arch by its package; and BLS in a folder of it. Those for crash dumps have other
// names, and stay unchanged.
func (t tree) initramfsOf(k kernel, inBoot []string) (paths []string) {
	names := []string{"initrd.img-" + k.release, "initramfs-" + k.release + ".img", "initrd-" + k.release, "initramfs-" + k.release}
	if pkg, there, err := t.text(k.modules + "/pkgbase"); there && err == nil {
		pkg = strings.TrimSpace(pkg)
		names = append(names, "initramfs-"+pkg+".img", "initramfs-"+pkg+"-fallback.img")
	}
	for _, name := range inBoot {
		if slices.Contains(names, name) {
			paths = append(paths, "boot/"+name)
			continue
		}
		for _, inner := range []string{"initrd", "initrd.img"} {
			if path := "boot/" + name + "/" + k.release + "/" + inner; t.has(path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}
