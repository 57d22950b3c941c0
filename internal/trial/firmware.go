package trial

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/decamp/decamp/internal/fault"
)

// A firmware is a pair of files: code, and variables to begin with.
type firmware struct{ code, vars string }

// A descriptor is one file of QEMU's firmware interface, docs/interop/firmware.json: distributions
// say so where their OVMF is.
type descriptor struct {
	Types   []string `json:"interface-types"`
	Mapping struct {
		Device     string                    `json:"device"`
		Executable struct{ Filename string } `json:"executable"`
		Template   struct{ Filename string } `json:"nvram-template"`
	} `json:"mapping"`
	Targets []struct {
		Architecture string `json:"architecture"`
	} `json:"targets"`
	Features []string `json:"features"`
}

// findFirmware picks the first descriptor that fits, in the order of their names, as libvirt does:
// with secure boot one whose keys are enrolled.
func findFirmware(root string, secure bool) (firmware, error) {
	files, _ := filepath.Glob(filepath.Join(root, "usr/share/qemu/firmware/*.json")) // the pattern is right
	sort.Strings(files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // one that is no more
		}
		var d descriptor
		if json.Unmarshal(text, &d) == nil && d.fits(secure) {
			return firmware{code: filepath.Join(root, d.Mapping.Executable.Filename), vars: filepath.Join(root, d.Mapping.Template.Filename)}, nil
		}
	}
	return firmware{}, fault.New(fault.NotFound, "no UEFI firmware is installed (secure boot: %v)", secure).
		WithHint("apt install ovmf   # dnf install edk2-ovmf; zypper install qemu-ovmf-x86_64")
}

func (d descriptor) fits(secure bool) bool {
	has := func(feature string) bool { return slices.Contains(d.Features, feature) }
	if !slices.Contains(d.Types, "uefi") || d.Mapping.Device != "flash" || d.Mapping.Template.Filename == "" || has("amd-sev-es") || has("intel-tdx") {
		return false
	}
	for _, t := range d.Targets {
		if t.Architecture == "x86_64" {
			return secure == has("enrolled-keys") && secure == has("requires-smm")
		}
	}
	return false
}
