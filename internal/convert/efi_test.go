package convert

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/tree/treetest"
)

// A firmware without boot entries needs files in EFI/BOOT. fallbackOf selects them from the files of the vendor.
func TestFallbackOf(t *testing.T) {
	for name, tt := range map[string]struct {
		files  string // paths in EFI
		want   string // added files in EFI/BOOT with their sources in EFI
		loader string
	}{
		"Debian":             {"debian/shimx64.efi debian/grubx64.efi debian/mmx64.efi debian/fbx64.efi debian/BOOTX64.CSV", "BOOTX64.EFI=debian/shimx64.efi FBX64.EFI=debian/fbx64.efi", "debian/shimx64.efi"},
		"shim, no helper":    {"debian/shimx64.efi debian/grubx64.efi debian/mmx64.efi", "BOOTX64.EFI=debian/shimx64.efi GRUBX64.EFI=debian/grubx64.efi MMX64.EFI=debian/mmx64.efi", "debian/shimx64.efi"},
		"helper, no entry":   {"debian/shimx64.efi debian/grubx64.efi debian/fbx64.efi", "BOOTX64.EFI=debian/shimx64.efi GRUBX64.EFI=debian/grubx64.efi", "debian/shimx64.efi"},
		"shim alone":         {"debian/shimx64.efi", "", ""},
		"GRUB":               {"GRUB/grubx64.efi", "BOOTX64.EFI=GRUB/grubx64.efi", "GRUB/grubx64.efi"},
		"systemd-boot":       {"systemd/systemd-bootx64.efi", "BOOTX64.EFI=systemd/systemd-bootx64.efi", "systemd/systemd-bootx64.efi"},
		"two, one of the ID": {"debian/grubx64.efi ubuntu/grubx64.efi", "BOOTX64.EFI=debian/grubx64.efi", "debian/grubx64.efi"},
		"two others":         {"arch/grubx64.efi ubuntu/grubx64.efi", "", "arch, ubuntu"},
		"Windows":            {"Microsoft/Boot/bootmgfw.efi", "", ""},
		"an empty partition": {"", "", ""},
	} {
		files := map[string]string{}
		for _, f := range strings.Fields(tt.files) {
			files["EFI/"+f] = "x"
		}
		plan, loader := fallbackOf(treetest.Memory(files), "debian")
		var got []string
		for _, to := range slices.Sorted(maps.Keys(plan)) {
			got = append(got, strings.TrimPrefix(to, "EFI/BOOT/")+"="+strings.TrimPrefix(plan[to], "EFI/"))
		}
		if strings.Join(got, " ") != tt.want || strings.TrimPrefix(loader, "EFI/") != tt.loader {
			t.Errorf("%s: %q, loader %q", name, got, loader)
		}
	}
}

const espMiB = 4

// efiDisk returns a disk of Debian with GRUB in debian/ of its EFI system partition, and a file of filler
// bytes there.
func efiDisk(t *testing.T, filler int) memory {
	t.Helper()
	d := makeDisk(t, part{files: debianFiles(t), uuid: rootUUID, size: 40, args: "-t ext4"}, part{size: espMiB, args: "swap"})
	dir := files{"grub": strings.Repeat("loader", 20_000), "filler": strings.Repeat("x", filler)}.writeFolder(t)
	img := filepath.Join(dir, "esp")
	for _, args := range [][]string{
		{"mkfs.fat", "-C", img, strconv.Itoa(espMiB << 10)},
		{"mmd", "-i", img, "::EFI", "::EFI/debian"},
		{"mcopy", "-i", img, filepath.Join(dir, "grub"), "::EFI/debian/grubx64.efi"},
		{"mcopy", "-i", img, filepath.Join(dir, "filler"), "::FILLER"},
	} {
		if out, err := exec.Command(findTool(t, args[0]), args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	esp, err := os.ReadFile(img)
	if err != nil {
		t.Fatal(err)
	}
	copy(d.esp(), esp)
	d.data[446+16+4] = 0xef
	return d
}

// esp returns the EFI system partition of efiDisk.
func (m memory) esp() []byte { return m.data[41<<20 : (41+espMiB)<<20] }

// The boot loader is added only once, and two conversions have the same result. If the partition is full or
// damaged, it stays unchanged, a note reports it, and the rest of the guest is converted.
func TestBootLoaderIsAddedOrNoted(t *testing.T) {
	for name, tt := range map[string]struct {
		filler int
		bios   bool
		damage func(esp []byte)
		note   string // part of the expected note about the loader; empty if there must be none
	}{
		"enough space":       {},
		"full":               {filler: espMiB<<20 - 200_000, note: "are free"},
		"tables that differ": {damage: func(esp []byte) { esp[512*(1+int(esp[14])-1+int(esp[22]))+9] ^= 1 }, note: "differ"},
		"invalid FAT":        {damage: func(esp []byte) { esp[13] = 3 }, note: "in a cluster"},
		"BIOS":               {bios: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := efiDisk(t, tt.filler)
			if tt.damage != nil {
				tt.damage(d.esp())
			}
			copied, before := memory{bytes.Clone(d.data)}, bytes.Clone(d.esp())
			result, err := convertOn(t, Options{EFI: !tt.bios}, d)
			if err != nil || len(result.Changes) == 0 {
				t.Fatalf("result %+v without changes, or error %v", result, err)
			}
			if _, err := convertOn(t, Options{EFI: !tt.bios}, copied); err != nil || !bytes.Equal(copied.data, d.data) {
				t.Errorf("a conversion of a copy of the disk has another result: %v", err)
			}
			added := slices.ContainsFunc(result.Changes, func(c Change) bool { return c.Path == "boot/efi/EFI/BOOT/BOOTX64.EFI" })
			if added != (tt.note == "" && !tt.bios) || added == bytes.Equal(before, d.esp()) {
				t.Errorf("loader added: %v, result %+v", added, result)
			}
			notes := slices.DeleteFunc(slices.Clone(result.Notes), func(n string) bool { return !strings.Contains(n, fallbackLoader) })
			if len(notes) > 1 || (len(notes) == 1) != (tt.note != "") || !strings.Contains(strings.Join(notes, ""), tt.note) {
				t.Errorf("notes %q about the loader, want %q", notes, tt.note)
			}
			if !added {
				return
			}
			checkESP(t, d)
			if again, err := convertOn(t, Options{EFI: true}, d); err != nil || len(again.Changes) != 0 {
				t.Errorf("second run: %+v, error %v", again, err)
			}
		})
	}
}

// checkESP checks the EFI system partition with dosfstools and mtools.
func checkESP(t *testing.T, d memory) {
	t.Helper()
	img := filepath.Join(t.TempDir(), "esp")
	if err := os.WriteFile(img, d.esp(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(findTool(t, "fsck.fat"), "-n", img).CombinedOutput(); err != nil {
		t.Errorf("fsck.fat -n: %v: %s", err, out)
	}
	out, err := exec.Command(findTool(t, "mtype"), "-i", img, "::/EFI/BOOT/BOOTX64.EFI").Output()
	if err != nil || string(out) != strings.Repeat("loader", 20_000) {
		t.Errorf("mtype returns %d bytes of the loader, want %d, error %v", len(out), 120_000, err)
	}
}
