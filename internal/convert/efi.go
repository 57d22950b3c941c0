package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/fat"
	reading "github.com/decamp/decamp/internal/guest/tree"
)

// The boot entries of EFI are in variables of the firmware, which are not migrated. A firmware without
// entries starts EFI/BOOT/BOOTX64.EFI of the system partition; Debian, Arch and others create that file
// only on request. All targets start it without further configuration.
const (
	fallbackFolder = "EFI/BOOT/"                    // folder in which firmware without boot entries searches a loader
	fallbackLoader = fallbackFolder + "BOOTX64.EFI" // loader that such firmware starts

	maxLoader = 16 << 20 // bytes of a loader
)

// addLoader adds a fallback loader to an EFI system partition that has none, on a separate layer that
// is merged as a whole. A failure only adds a note: the rest of the conversion remains valid. The error
// is a limit of b or a failure to read the disks.
func addLoader(b *budget.Budget, disks []Disk, o Options, r *Result) error {
	if !o.EFI {
		return nil
	}
	above := newLayers(disks)
	vols, err := listVolumes(b, above)
	if err != nil {
		return err
	}
	for _, v := range vols {
		// Only one partition gets a loader, even if there are several.
		if !v.esp || v.kind != guest.FAT {
			continue
		}
		added, done, err := v.addLoader(guestDistribution(disks), o.Now(), r)
		if err == nil && added != "" {
			err = mergeLayers(disks, above)
		}
		switch {
		case b.Err() != nil:
			return b.Err()
		case err == nil && added != "":
			r.addChange("boot/efi/"+fallbackLoader, "the boot entries of VMware's firmware are not migrated, and firmware without boot entries starts %s", added)
		case err != nil:
			r.addNote("%s cannot be added to the EFI system partition %s, and firmware without a boot entry does not start the guest: %v; before the copy, run in the guest: grub-install --removable, or --force-extra-removable on Debian", fallbackLoader, v.displayName(), err)
		}
		if err != nil || done {
			return nil
		}
	}
	return nil
}

// addLoader copies the loader on this volume. done is true if the volume now has a fallback loader;
// added is the path that was copied, empty if none was.
func (v volume) addLoader(distribution string, now time.Time, r *Result) (added string, done bool, err error) {
	files, err := guest.OpenTree(v.kind, v.files)
	if err != nil {
		return "", false, err
	}
	if reading.Has(files, fallbackLoader) {
		return "", true, nil
	}
	plan, loader := fallbackOf(files, distribution)
	// If there are loaders of several vendors, a wrong choice could start another system.
	if plan == nil {
		if loader != "" {
			r.addNote("the EFI system partition has several loaders (%s) and no %s: choose one in the firmware's menu, and run grub-install --removable", loader, fallbackLoader)
		}
		return "", false, nil
	}
	w, err := fat.OpenWriter(v.files, now)
	if err == nil {
		err = copyLoaders(w, plan)
	}
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return "", false, err
	}
	return loader, true, nil
}

// guestDistribution returns the ID in the guest's os-release: "debian". It is empty if unknown.
func guestDistribution(disks []Disk) string {
	for _, d := range disks {
		if d.Report.Linux != nil {
			return d.Report.OS.ID
		}
	}
	return ""
}

// copyLoaders copies files of the partition; plan contains the source of each destination. Existing
// files are kept.
func copyLoaders(w *fat.Writer, plan map[string]string) error {
	// A sorted order makes the result reproducible.
	for _, to := range slices.Sorted(maps.Keys(plan)) {
		data, err := w.Tree().ReadFile(plan[to], maxLoader)
		if err != nil {
			return fmt.Errorf("%s: %w", plan[to], err)
		}
		if err := w.Add(to, data); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// fallbackOf returns the files to copy for the fallback loader, so that firmware without boot entries
// starts the guest. If several vendors have loaders, it uses that of the guest's distribution. If plan
// is nil, nothing can be copied; loader then lists the ambiguous vendors and is empty if there are
// none. Otherwise loader is the path of the loader.
func fallbackOf(t *reading.Tree, distribution string) (plan map[string]string, loader string) {
	vendors, err := t.ReadDir("EFI")
	if err != nil {
		return nil, ""
	}
	plans, names := map[string]map[string]string{}, []string{}
	for _, v := range vendors {
		if p := planFor(t, "EFI/"+v.Name+"/"); p != nil && !strings.EqualFold(v.Name, "BOOT") {
			plans[v.Name] = p
			names = append(names, v.Name)
		}
	}
	slices.Sort(names) // FAT folders are not sorted
	for _, name := range names {
		if len(names) == 1 || strings.EqualFold(name, distribution) {
			return plans[name], plans[name][fallbackLoader]
		}
	}
	return nil, strings.Join(names, ", ")
}

// planFor returns the destinations and sources of a vendor's loader; nil if the folder has none. Shim,
// which Secure Boot trusts, finds its boot entry and creates it again if its helper fbx64 is in the
// same folder. Later updates of the guest in the vendor's folder are then effective. Without the helper
// shim starts the GRUB in its folder.
func planFor(t *reading.Tree, folder string) map[string]string {
	has := func(name string) bool { return reading.Has(t, folder+name) }
	shim := map[string]string{fallbackLoader: folder + "shimx64.efi"}
	switch {
	// BOOTX64.CSV contains the boot entry that fbx64 creates.
	case has("shimx64.efi") && has("fbx64.efi") && has("BOOTX64.CSV"):
		shim[fallbackFolder+"FBX64.EFI"] = folder + "fbx64.efi"
		return shim
	case has("shimx64.efi"):
		for _, name := range []string{"grubx64.efi", "mmx64.efi", "grub.efi"} {
			if has(name) {
				shim[fallbackFolder+strings.ToUpper(name)] = folder + name
			}
		}
		if len(shim) > 1 {
			return shim
		}
	}
	for _, name := range []string{"grubx64.efi", "grub.efi", "systemd-bootx64.efi", "elilo.efi", "refind_x64.efi"} {
		if has(name) {
			return map[string]string{fallbackLoader: folder + name}
		}
	}
	return nil
}
