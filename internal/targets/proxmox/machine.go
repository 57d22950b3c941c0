package proxmox

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
)

// Param is a parameter of a request.
type Param struct {
	Key, Value string // name, and value before form encoding
}

// Disk is a disk of the guest without its volume.
type Disk struct {
	Source int    // index in the VM's disks
	Image  int    // index in the definition's images; -1 if there are no images
	Slot   string // option of the guest, such as "scsi0"
	On     string // storage for the volume
	Words  string // options after the volume, such as ",discard=on"
}

// Machine is the definition of a guest.
type Machine struct {
	Name     string              // guest's name, a DNS label
	Base     []Param             // options without disks, tags and description
	Disks    []Disk              // in the order of their slots
	Boot     string              // boot order such as "order=scsi0;net0"; set when the disks exist
	Warnings []inventory.Warning // differences from the source VM
}

// Config returns the guest's definition, with a warning for each difference from the source VM. def may
// have no images.
//
// Config follows Proxmox's import from ESXi. In addition it keeps the serial number of the VM and its
// disks, CD-ROMs in
// the boot order, the virtual TPM, Secure Boot, and whether a card is connected. If Proxmox's import
// would use a
// controller for which the guest has no driver, Config uses SATA, or virtio-scsi for Linux.
func Config(def targets.Definition, o Options) (Machine, error) {
	if def.VM == nil {
		return Machine{}, fault.New(fault.Internal, "define a guest without a VM")
	}
	b := &builder{vm: def.VM, def: def, opts: o, hardware: def.Hardware, slots: map[string]string{}}
	for _, step := range []func() error{b.setIdentity, b.setProcessors, b.setFirmware, b.addDisks, b.addCDROMs, b.addCards} {
		if err := step(); err != nil {
			return Machine{}, fmt.Errorf("define VM %s: %w", def.VM.Name, err)
		}
	}
	b.m.Boot = b.bootOrder()
	return b.m, nil
}

// builder builds one Machine.
type builder struct {
	vm        *inventory.VM      // def.VM
	def       targets.Definition // not modified
	opts      Options            // options of the platform
	hardware  targets.Hardware   // profile of controllers and cards
	m         Machine            // the result
	slots     map[string]string  // slot of each boot device: "disk:2000" is "scsi0"
	usedSlots map[string]int     // number of assigned slots, by kind
}

// addParam adds an option of the guest.
func (b *builder) addParam(key, value string) { b.m.Base = append(b.m.Base, Param{key, value}) }

// warn adds a warning. code is a stable identifier, remedy an instruction for the user.
func (b *builder) warn(code, remedy, format string, args ...any) {
	b.m.Warnings = append(b.m.Warnings, inventory.Warning{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// isEFI reports whether the VM has EFI firmware.
func (b *builder) isEFI() bool { return b.vm.Firmware == inventory.EFI }

// setIdentity sets name, type, SMBIOS UUID and serial number, serial port and guest agent.
func (b *builder) setIdentity() error {
	b.m.Name = guestName(b.opts.Maps.Name(b.vm.Name))
	b.addParam("name", b.m.Name)
	b.addParam("ostype", ostypeOf(b.vm, b.def.Guest))
	b.addParam("onboot", "0")
	b.addParam("vmgenid", "1") // Proxmox generates a new ID
	if b.vm.UUID != "" {
		serial := base64.StdEncoding.EncodeToString([]byte(b.vm.Serial()))
		b.addParam("smbios1", "base64=1,serial="+serial+",uuid="+b.vm.UUID)
	}
	b.addParam("serial0", "socket")
	if b.def.AgentChannel() {
		b.addParam("agent", "1")
	}
	return nil
}

// maxName is the maximum length of a DNS label in bytes (RFC 1035, section 2.3.4).
const maxName = 63

// guestName converts a VM's name to a DNS label, which Proxmox requires.
func guestName(name string) string {
	dashed := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name)
	for strings.Contains(dashed, "--") {
		dashed = strings.ReplaceAll(dashed, "--", "-")
	}
	dashed = strings.Trim(dashed, "-")
	return cmp.Or(strings.Trim(dashed[:min(len(dashed), maxName)], "-"), "vm")
}

// setProcessors sets CPUs and memory. Without virtio drivers, the guest gets no balloon device.
func (b *builder) setProcessors() error {
	sockets, cores := b.vm.Topology()
	b.addParam("sockets", fmt.Sprint(sockets))
	b.addParam("cores", fmt.Sprint(cores))
	b.addParam("cpu", b.opts.CPU)
	if sockets > 1 {
		b.addParam("numa", "1")
	}
	b.addParam("memory", fmt.Sprint(b.vm.MemoryMiB))
	if !b.hardware.OnVirtio() {
		b.addParam("balloon", "0") // the balloon is a virtio device
	}
	return nil
}

// setFirmware sets firmware, EFI disk and TPM. Over SSH the EFI disk must be raw, like all volumes.
func (b *builder) setFirmware() error {
	if !b.isEFI() {
		b.addParam("bios", "seabios")
		return nil
	}
	b.addParam("bios", "ovmf")
	b.addParam("machine", "q35")
	keys := "0"
	if b.vm.SecureBoot {
		keys = "1"
	}
	home, err := b.opts.storageOf(namemap.Home(b.vm))
	if err != nil {
		return err
	}
	variables := home + ":1,efitype=4m,pre-enrolled-keys=" + keys
	if b.opts.SSH != "" { // decamp writes only to raw volumes
		variables += ",format=raw"
	}
	b.addParam("efidisk0", variables)
	if b.opts.SSH == "" || b.def.EFI.Empty() {
		b.m.Warnings = append(b.m.Warnings, variablesWarning(nil))
	}
	if b.vm.VTPM {
		b.addParam("tpmstate0", home+":1,version=v2.0")
		b.warn("vtpm", "keep the BitLocker or LUKS recovery key at hand for the first boot",
			"the virtual TPM starts empty: VMware does not export its content")
	}
	return nil
}

// addCDROMs adds the CD-ROM drives without media. Drives for which there is no IDE slot are omitted.
func (b *builder) addCDROMs() error {
	for i := range b.vm.CDROMs {
		slot, ok := b.nextSlot("ide")
		if !ok {
			break
		}
		b.addParam(slot, "none,media=cdrom")
		if i == 0 {
			b.slots["cdrom"] = slot
		}
	}
	return nil
}

// bootOrder returns the VM's boot order, followed by the remaining disks, because VMware's firmware
// tries them, too.
func (b *builder) bootOrder() string {
	devices := append([]string{}, b.vm.BootOrder...)
	for _, c := range b.vm.Controllers {
		for _, i := range b.disksOn(c) {
			devices = append(devices, fmt.Sprintf("disk:%d", b.vm.Disks[i].Key))
		}
	}
	var order []string
	seen := map[string]bool{}
	for _, device := range devices {
		if slot := b.slots[device]; slot != "" && !seen[slot] {
			seen[slot] = true
			order = append(order, slot)
		}
	}
	if len(order) == 0 {
		return ""
	}
	return "order=" + strings.Join(order, ";")
}
