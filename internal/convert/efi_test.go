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

// Which files a firmware needs that knows no boot entries, by what vendors leave.
func TestFallbackOf(t *testing.T) {
	for name, tt := range map[string]struct {
		files  string // below EFI
		want   string // what is added below EFI/BOOT, with what it is below EFI
		loader string
	}{
		"Debian":             {"debian/shimx64.efi debian/grubx64.efi debian/mmx64.efi debian/fbx64.efi debian/BOOTX64.CSV", "BOOTX64.EFI=debian/shimx64.efi FBX64.EFI=debian/fbx64.efi", "debian/shimx64.efi"},
		"shim, no helper":    {"debian/shimx64.efi debian/grubx64.efi debian/mmx64.efi", "BOOTX64.EFI=debian/shimx64.efi GRUBX64.EFI=debian/grubx64.efi MMX64.EFI=debian/mmx64.efi", "debian/shimx64.efi"},
		"helper, no entry":   {"debian/shimx64.efi debian/grubx64.efi debian/fbx64.efi", "BOOTX64.EFI=debian/shimx64.efi GRUBX64.EFI=debian/grubx64.efi", "debian/shimx64.efi"},
		"shim alone":         {"debian/shimx64.efi", "", ""},
		"GRUB":               {"GRUB/grubx64.efi", "BOOTX64.EFI=GRUB/grubx64.efi", "GRUB/grubx64.efi"},
		"systemd-boot":       {"systemd/systemd-bootx64.efi", "BOOTX64.EFI=systemd/systemd-bootx64.efi", "systemd/systemd-bootx64.efi"},
		"two, one of ours":   {"debian/grubx64.efi ubuntu/grubx64.efi", "BOOTX64.EFI=debian/grubx64.efi", "debian/grubx64.efi"},
		"two of others":      {"arch/grubx64.efi ubuntu/grubx64.efi", "", "arch, ubuntu"},
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

// efiDisk is a Debian with GRUB in debian/ of its EFI system partition, where a file of filler
// bytes lies beside it.
func efiDisk(t *testing.T, filler int) memory {
	t.Helper()
	d := makeDisk(t, part{files: debian(t), uuid: rootUUID, size: 40, args: "-t ext4"}, part{size: espMiB, args: "swap"})
	dir := files{"grub": strings.Repeat("loader", 20_000), "filler": strings.Repeat("x", filler)}.lay(t)
	img := filepath.Join(dir, "esp")
	for _, args := range [][]string{
		{"mkfs.fat", "-C", img, strconv.Itoa(espMiB << 10)},
		{"mmd", "-i", img, "::EFI", "::EFI/debian"},
		{"mcopy", "-i", img, filepath.Join(dir, "grub"), "::EFI/debian/grubx64.efi"},
		{"mcopy", "-i", img, filepath.Join(dir, "filler"), "::FILLER"},
	} {
		if out, err := exec.Command(tool(t, args[0]), args[1:]...).CombinedOutput(); err != nil {
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

// esp is the system partition of efiDisk.
func (m memory) esp() []byte { return m.data[41<<20 : (41+espMiB)<<20] }

// The loader is added the same each time, and once; a partition that cannot take it stays as it is,
// is told of, and the rest of the guest is converted.
func TestLoaderIsAddedOrTold(t *testing.T) {
	for name, tt := range map[string]struct {
		filler int
		bios   bool
		damage func(esp []byte)
		note   string // "": it is added
	}{
		"room":               {},
		"full":               {filler: espMiB<<20 - 200_000, note: "are free"},
		"tables that differ": {damage: func(esp []byte) { esp[512*(1+int(esp[14])-1+int(esp[22]))+9] ^= 1 }, note: "differ"},
		"no FAT any more":    {damage: func(esp []byte) { esp[13] = 3 }, note: "in a cluster"},
		"BIOS":               {bios: true, note: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			d := efiDisk(t, tt.filler)
			if tt.damage != nil {
				tt.damage(d.esp())
			}
			twin, before := memory{bytes.Clone(d.data)}, bytes.Clone(d.esp())
			result, err := convertOn(t, Options{EFI: !tt.bios}, d)
			if err != nil || len(result.Changes) == 0 {
				t.Fatalf("%+v, %v", result, err)
			}
			if _, err := convertOn(t, Options{EFI: !tt.bios}, twin); err != nil || !bytes.Equal(twin.data, d.data) {
				t.Errorf("a second conversion is not as the first: %v", err)
			}
			added := slices.ContainsFunc(result.Changes, func(c Change) bool { return c.Path == "boot/efi/EFI/BOOT/BOOTX64.EFI" })
			if added != (tt.note == "") || added == bytes.Equal(before, d.esp()) {
				t.Errorf("added: %v; %+v", added, result)
			}
			if told := strings.Contains(strings.Join(result.Notes, "\n"), tt.note); !told && !tt.bios && !added {
				t.Errorf("notes %q", result.Notes)
			}
			if !added {
				return
			}
			checkESP(t, d)
			if again, err := convertOn(t, Options{EFI: true}, d); err != nil || len(again.Changes) != 0 {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}

// checkESP has dosfstools and mtools look at the system partition.
func checkESP(t *testing.T, d memory) {
	t.Helper()
	img := filepath.Join(t.TempDir(), "esp")
	if err := os.WriteFile(img, d.esp(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tool(t, "fsck.fat"), "-n", img).CombinedOutput(); err != nil {
		t.Errorf("fsck.fat -n: %v: %s", err, out)
	}
	out, err := exec.Command(tool(t, "mtype"), "-i", img, "::/EFI/BOOT/BOOTX64.EFI").Output()
	if err != nil || string(out) != strings.Repeat("loader", 20_000) {
		t.Errorf("mtools reads %d bytes of the loader, %v", len(out), err)
	}
}
