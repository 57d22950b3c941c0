package efi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/decamp/decamp/internal/fault"
)

// Firmware is a pair of files: code, and variables to begin with.
type Firmware struct{ Code, Vars string }

// A descriptor is one file of QEMU's firmware interface, docs/interop/firmware.json: distributions
// say so where their OVMF is.
type descriptor struct {
	Types   []string `json:"interface-types"`
	Mapping struct {
		Device     string                            `json:"device"`
		Executable struct{ Filename, Format string } `json:"executable"`
		Template   struct{ Filename, Format string } `json:"nvram-template"`
	} `json:"mapping"`
	Targets []struct {
		Architecture string `json:"architecture"`
	} `json:"targets"`
	Features []string `json:"features"`
}

// FindFirmware returns the first matching descriptor below root, in the order of their names, as
// libvirt does: with secure boot one whose keys are enrolled. The error is fault.NotFound without a
// match.
func FindFirmware(root string, secure bool) (Firmware, error) {
	files, _ := filepath.Glob(filepath.Join(root, "usr/share/qemu/firmware/*.json")) // the pattern is right
	sort.Strings(files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // one that is no more
		}
		var d descriptor
		if json.Unmarshal(text, &d) == nil && d.fits(secure) {
			return Firmware{Code: filepath.Join(root, d.Mapping.Executable.Filename), Vars: filepath.Join(root, d.Mapping.Template.Filename)}, nil
		}
	}
	return Firmware{}, fault.New(fault.NotFound, "no UEFI firmware is installed (secure boot: %v)", secure).
		WithHint("apt install ovmf   # dnf install edk2-ovmf; zypper install qemu-ovmf-x86_64")
}

func (d descriptor) fits(secure bool) bool {
	has := func(feature string) bool { return slices.Contains(d.Features, feature) }
	if !slices.Contains(d.Types, "uefi") || d.Mapping.Device != "flash" || d.Mapping.Template.Filename == "" || has("amd-sev-es") || has("intel-tdx") {
		return false
	}
	if raw := func(format string) bool { return format == "" || format == "raw" }; !raw(d.Mapping.Executable.Format) || !raw(d.Mapping.Template.Format) {
		return false // Fedora has qcow2 images, too, which are not read here
	}
	for _, t := range d.Targets {
		if t.Architecture == "x86_64" {
			return secure == has("enrolled-keys") && secure == has("requires-smm")
		}
	}
	return false
}
