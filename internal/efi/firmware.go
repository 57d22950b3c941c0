package efi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/decamp/decamp/internal/fault"
)

// Firmware is a pair of files: the code, and the template of its variables.
type Firmware struct{ Code, Vars string }

// A descriptor is a file of QEMU's firmware interface (docs/interop/firmware.json).
// Distributions describe their OVMF files in such files.
type descriptor struct {
	Types []string `json:"interface-types"` // interfaces, such as uefi
	// files of the firmware
	Mapping struct {
		Device     string                            `json:"device"`         // "flash" for separate code and variables
		Executable struct{ Filename, Format string } `json:"executable"`     // file with the code
		Template   struct{ Filename, Format string } `json:"nvram-template"` // initial variables
	} `json:"mapping"`
	// architectures and machine types
	Targets []struct {
		Architecture string `json:"architecture"`
	} `json:"targets"`
	Features []string `json:"features"` // features, such as secure-boot and enrolled-keys
}

// FindFirmware returns the first suitable firmware below root, in the order of the
// descriptors' names, like libvirt. If secure is true, its template must have enrolled
// keys. The error is fault.NotFound if there is none.
func FindFirmware(root string, secure bool) (Firmware, error) {
	files, _ := filepath.Glob(filepath.Join(root, "usr/share/qemu/firmware/*.json")) // the pattern is right
	sort.Strings(files)
	// Descriptors of packages start with a number, which determines the order.
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // one that is no more
		}
		var d descriptor
		if json.Unmarshal(text, &d) == nil && d.isSuitable(secure) {
			return Firmware{Code: filepath.Join(root, d.Mapping.Executable.Filename), Vars: filepath.Join(root, d.Mapping.Template.Filename)}, nil
		}
	}
	return Firmware{}, fault.New(fault.NotFound, "no UEFI firmware is installed (secure boot: %v)", secure).
		WithHint("apt install ovmf   # dnf install edk2-ovmf; zypper install qemu-ovmf-x86_64")
}

// isSuitable reports whether the firmware runs on x86-64, consists of two raw flash
// images, and has Secure Boot if and only if secure is true.
func (d descriptor) isSuitable(secure bool) bool {
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
