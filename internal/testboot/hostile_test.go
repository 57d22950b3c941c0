package testboot

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/confine"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory/inventorytest"
)

// parseOptions parses the options of an argument like QEMU (get_opt_value in util/qemu-option.c). A comma ends a
// value, and two commas are one comma. The first word may be the value of an implied key.
func parseOptions(arg, implied string) (map[string]string, error) {
	all := map[string]string{}
	for rest, first := arg, true; first || rest != ""; first = false {
		var word strings.Builder
		for rest != "" {
			if rest[0] == ',' {
				if len(rest) < 2 || rest[1] != ',' {
					break
				}
				rest = rest[1:]
			}
			word.WriteByte(rest[0])
			rest = rest[1:]
		}
		rest = strings.TrimPrefix(rest, ",")
		key, value, ok := strings.Cut(word.String(), "=")
		if first && implied != "" {
			key, value, ok = implied, word.String(), true
		}
		if _, twice := all[key]; twice || !ok {
			return nil, fmt.Errorf("%q: option %q is duplicate or has no value", arg, key)
		}
		all[key] = value
	}
	return all, nil
}

// hostileDomain returns a domain with arbitrary text in every string that reaches QEMU. Its disk is a raw image,
// which QEMU gets as a file descriptor.
func hostileDomain(image string, text func() string) *libvirtxml.Domain {
	zero := uint(0)
	d := &libvirtxml.Domain{
		Name: text(), UUID: text(), Memory: &libvirtxml.DomainMemory{Value: 256, Unit: "MiB"},
		OS: &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Arch: "x86_64", Machine: "pc"}},
		SysInfo: []libvirtxml.DomainSysInfo{{SMBIOS: &libvirtxml.DomainSysInfoSMBIOS{System: &libvirtxml.DomainSysInfoSystem{
			Entry: []libvirtxml.DomainSysInfoEntry{{Name: "serial", Value: text()}, {Name: "product", Value: text()}, {Name: text(), Value: text()}},
		}}}},
		Devices: &libvirtxml.DomainDeviceList{
			Controllers: []libvirtxml.DomainController{{Type: "scsi", Index: &zero, Model: "virtio-scsi"}},
			Interfaces:  []libvirtxml.DomainInterface{{MAC: &libvirtxml.DomainInterfaceMAC{Address: text()}}},
		},
	}
	d.Devices.Disks = []libvirtxml.DomainDisk{{
		Device: "disk", Driver: &libvirtxml.DomainDiskDriver{Type: "raw"}, Serial: text(),
		Source:  &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: image}},
		Target:  &libvirtxml.DomainDiskTarget{Dev: text(), Bus: "scsi"},
		Address: &libvirtxml.DomainAddress{Drive: &libvirtxml.DomainAddressDrive{}},
		Boot:    &libvirtxml.DomainDeviceBoot{Order: 1},
	}}
	return d
}

// TestHostileInventoryInArguments builds command lines of hostile domains and parses them like QEMU.
func TestHostileInventoryInArguments(t *testing.T) {
	r := inventorytest.New(13)
	image := filepath.Join(t.TempDir(), `disk,driver=nbd "'.raw`)
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range inventorytest.Runs {
		d := hostileDomain(image, func() string { return inventorytest.Line(r) })
		m, err := newMachine(d, "/tmp/trial", TCG, Options{}.withDefaults())
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for i := 0; i < len(m.args); i++ {
			switch arg := m.args[i]; arg {
			case "-uuid":
				i++
				checkEqual(t, arg, m.args[i], d.UUID)
			case "-smbios":
				i++
				entry := d.SysInfo[0].SMBIOS.System.Entry
				want := map[string]string{"type": "1", "serial": entry[0].Value, "product": entry[1].Value}
				checkOptions(t, m.args[i], "", want)
			case "-drive":
				i++
				checkOptions(t, m.args[i], "", map[string]string{
					"if": "none", "id": "disk0", "snapshot": "on", "driver": "raw", "file.driver": "file", "file.filename": confine.SetPath(0),
				})
			case "-device":
				i++
				got, err := parseOptions(m.args[i], "driver")
				if err != nil {
					t.Fatal(err)
				}
				switch got["driver"] {
				case "scsi-hd":
					want := []string{"bootindex", "bus", "channel", "drive", "driver", "lun", "scsi-id", "serial"}
					checkEqual(t, "options", slices.Sorted(maps.Keys(got)), want)
					checkEqual(t, "serial", got["serial"], d.Devices.Disks[0].Serial)
				case "virtio-net-pci":
					checkOptions(t, m.args[i], "driver", map[string]string{
						"driver": "virtio-net-pci", "mac": d.Devices.Interfaces[0].MAC.Address, "netdev": "net0", "romfile": "",
					})
				case "virtio-scsi-pci", "VGA":
					continue
				default:
					t.Fatalf("an unexpected device: %q", m.args[i])
				}
				seen[got["driver"]] = true
			}
			seen[m.args[i]] = true
		}
		m.closeSets()
		if !seen["scsi-hd"] || !seen["virtio-net-pci"] {
			t.Fatalf("a device is missing: %q", m.args)
		}
	}
}

func checkOptions(t *testing.T, arg, implied string, want map[string]string) {
	t.Helper()
	got, err := parseOptions(arg, implied)
	if err != nil {
		t.Fatal(err)
	}
	checkEqual(t, arg, got, want)
}

func checkEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

// Formats other than raw and qcow2 are refused.
func TestHostileFormatsAreRefused(t *testing.T) {
	r := inventorytest.New(14)
	image := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		d := hostileDomain(image, func() string { return "text" })
		d.Devices.Disks[0].Driver.Type = "x" + inventorytest.Line(r)
		if _, err := newMachine(d, "/tmp/trial", TCG, Options{}.withDefaults()); !fault.Is(err, fault.Unsupported) {
			t.Fatalf("format %q: got %v, want an unsupported error", d.Devices.Disks[0].Driver.Type, err)
		}
	}
}

// TestDisksAreFiles checks that names which QEMU interprets as a protocol or an option are refused.
func TestDisksAreFiles(t *testing.T) {
	for _, file := range []string{"", "nbd:unix:/run/x", `json:{"driver":"nbd"}`, "ssh://host/x", "disk.raw", "-x"} {
		d := hostileDomain(file, func() string { return "text" })
		if _, err := newMachine(d, "/tmp/trial", TCG, Options{}.withDefaults()); !fault.Is(err, fault.Unsupported) {
			t.Errorf("%q: got %v, want an unsupported error", file, err)
		}
	}
}
