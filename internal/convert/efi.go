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

// The boot entries of EFI are in variables of the firmware, which stay behind. A firmware without
// entries starts EFI/BOOT/BOOTX64.EFI of the system partition; Debian, Arch and others create that file
// only on request. All targets start it without further configuration.
const (
	fallbackFolder = "EFI/BOOT/"
	fallbackLoader = fallbackFolder + "BOOTX64.EFI"

	maxLoader = 16 << 20 // bytes of a loader
)

// addLoader adds a fallback loader to an EFI system partition without one, on a separate layer that is
// applied as a whole. A failure is noted: the rest of the conversion stays.
func addLoader(b *budget.Budget, disks []Disk, o Options, r *Result) error {
	if !o.EFI {
		return nil
	}
	above := layers(disks)
	vols, err := volumes(b, above)
	if err != nil {
		return err
	}
	for _, v := range vols {
		if !v.esp || v.kind != guest.FAT {
			continue
		}
		added, done, err := v.addLoader(distribution(disks), o.Now(), r)
		if err == nil && added != "" {
			err = take(disks, above)
		}
		switch {
		case b.Err() != nil:
			return b.Err()
		case err == nil && added != "":
			r.change("boot/efi/"+fallbackLoader, "the boot entries of VMware's firmware stay behind: any firmware starts %s", added)
		case err != nil:
			r.note("%s cannot be added to the EFI system partition %s, and a firmware that does not know the guest does not start it: %v; before the copy, in the guest: grub-install --removable, or --force-extra-removable on Debian", fallbackLoader, v.name(), err)
		}
		if err != nil || done {
			return nil
		}
	}
	return nil
}

// addLoader is done where the partition has a fallback loader now; added is what that is a copy of.
func (v volume) addLoader(distribution string, now time.Time, r *Result) (added string, done bool, err error) {
	files, err := guest.OpenTree(v.kind, v.files)
	if err != nil {
		return "", false, err
	}
	if reading.Has(files, fallbackLoader) {
		return "", true, nil
	}
	plan, loader := fallbackOf(files, distribution)
	if plan == nil {
		if loader != "" {
			r.note("the EFI system partition has loaders of %s and no %s: which to start is not known; choose in the firmware's menu, and run grub-install --removable", loader, fallbackLoader)
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

// distribution is the guest's by its os-release: "debian".
func distribution(disks []Disk) string {
	for _, d := range disks {
		if d.Report.Linux != nil {
			return d.Report.OS.ID
		}
	}
	return ""
}

// copyLoaders copies files of the partition to other names on it.
func copyLoaders(w *fat.Writer, plan map[string]string) error {
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

// fallbackOf returns the files to copy for the fallback loader, so that a firmware without boot entries
// starts the guest. Of several vendors' loaders it takes that of the guest's distribution. A nil plan
// copies nothing; loader is the loader that would start, or the list of ambiguous ones.
// loader is what would start, or who had to be told apart.
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
	slices.Sort(names) // FAT has no order
	for _, name := range names {
		if len(names) == 1 || strings.EqualFold(name, distribution) {
			return plans[name], plans[name][fallbackLoader]
		}
	}
	return nil, strings.Join(names, ", ")
}

// planFor returns the files of a vendor's folder with their destinations. Shim, which Secure Boot
// trusts, finds its boot entry if its helper fbx64 is beside it, and creates it again: later updates of
// the guest in the vendor's folder are then effective. Without the helper shim starts the GRUB beside
// it.
func planFor(t *reading.Tree, folder string) map[string]string {
	has := func(name string) bool { return reading.Has(t, folder+name) }
	shim := map[string]string{fallbackLoader: folder + "shimx64.efi"}
	switch {
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
