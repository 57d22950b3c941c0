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

// A Param is a parameter of Proxmox's API.
type Param struct {
	Key, Value string
}

// A Disk is a disk of the guest, without its volume.
type Disk struct {
	Source int    // index of the VM's disk
	Image  int    // index of its image in the definition
	Slot   string // scsi0
	On     string // the storage that it goes to
	Words  string // ",discard=on,…": what is said of it after its volume
}

// A Machine is what a guest is made of.
type Machine struct {
	Name     string
	Base     []Param // without disks; mark and tags are the delivery's
	Disks    []Disk
	Boot     string // "order=scsi0;net0", for when the disks are there
	Warnings []inventory.Warning
}

// Config says what guest def becomes, with a warning for each thing that is not as it was on
// VMware. It follows Proxmox's own import of VMs from ESXi, and keeps besides it: the serial number,
// the disks' serial numbers, CD-ROMs in the boot order, a virtual TPM, Secure Boot, whether a card's
// cable is plugged in. Where that import puts a disk on a controller whose driver the guest cannot
// have, Config takes SATA or, for Linux, virtio-scsi.
func Config(def targets.Definition, o Options) (Machine, error) {
	if def.VM == nil {
		return Machine{}, fault.New(fault.Internal, "define a guest of no VM")
	}
	b := &builder{vm: def.VM, def: def, opts: o, hardware: def.Hardware, slots: map[string]string{}}
	for _, step := range []func() error{b.identity, b.processors, b.firmware, b.disks, b.opticals, b.cards} {
		if err := step(); err != nil {
			return Machine{}, fmt.Errorf("define VM %s: %w", def.VM.Name, err)
		}
	}
	b.m.Boot = b.bootOrder()
	return b.m, nil
}

// A builder collects one Machine.
type builder struct {
	vm       *inventory.VM
	def      targets.Definition
	opts     Options
	hardware targets.Hardware
	m        Machine
	slots    map[string]string // by VMware's boot device: "disk:2000" is scsi0
	taken    map[string]int    // slots that were handed out, by kind
}

func (b *builder) base(key, value string) { b.m.Base = append(b.m.Base, Param{key, value}) }

func (b *builder) warn(code, remedy, format string, args ...any) {
	b.m.Warnings = append(b.m.Warnings, inventory.Warning{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (b *builder) efi() bool { return b.vm.Firmware == inventory.EFI }

func (b *builder) identity() error {
	b.m.Name = guestName(b.opts.Maps.Name(b.vm.Name))
	b.base("name", b.m.Name)
	b.base("ostype", ostypeOf(b.vm, b.def.Guest))
	b.base("onboot", "0")
	b.base("vmgenid", "1") // a new one
	if b.vm.UUID != "" {
		serial := base64.StdEncoding.EncodeToString([]byte(b.vm.Serial()))
		b.base("smbios1", "base64=1,serial="+serial+",uuid="+b.vm.UUID)
	}
	b.base("serial0", "socket")
	if b.def.AgentChannel() {
		b.base("agent", "1")
	}
	return nil
}

// maxName is the longest label of a DNS name, in bytes.
const maxName = 63

// guestName makes a VM's name one label of a DNS name, which is what Proxmox takes.
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

func (b *builder) processors() error {
	sockets, cores := b.vm.Topology()
	b.base("sockets", fmt.Sprint(sockets))
	b.base("cores", fmt.Sprint(cores))
	b.base("cpu", b.opts.CPU)
	if sockets > 1 {
		b.base("numa", "1")
	}
	b.base("memory", fmt.Sprint(b.vm.MemoryMiB))
	if !b.hardware.OnVirtio() {
		b.base("balloon", "0") // it is a virtio device, which the guest has no driver for
	}
	return nil
}

func (b *builder) firmware() error {
	if !b.efi() {
		b.base("bios", "seabios")
		return nil
	}
	b.base("bios", "ovmf")
	b.base("machine", "q35")
	keys := "0"
	if b.vm.SecureBoot {
		keys = "1"
	}
	home, err := b.opts.storage(namemap.Home(b.vm))
	if err != nil {
		return err
	}
	variables := home + ":1,efitype=4m,pre-enrolled-keys=" + keys
	if b.opts.SSH != "" { // as all volumes are then: no other kind is written to
		variables += ",format=raw"
	}
	b.base("efidisk0", variables)
	if b.opts.SSH == "" || b.def.EFI.Empty() {
		b.m.Warnings = append(b.m.Warnings, leftBehind(nil))
	}
	if b.vm.VTPM {
		b.base("tpmstate0", home+":1,version=v2.0")
		b.warn("vtpm", "keep the BitLocker or LUKS recovery key at hand for the first boot",
			"the virtual TPM starts empty: VMware does not export its content")
	}
	return nil
}

// opticals adds the CD-ROM drives, empty, as far as IDE has places.
func (b *builder) opticals() error {
	for i := range b.vm.CDROMs {
		slot, ok := b.seat("ide")
		if !ok {
			break
		}
		b.base(slot, "none,media=cdrom")
		if i == 0 {
			b.slots["cdrom"] = slot
		}
	}
	return nil
}

// bootOrder is the VM's own, and then its disks: firmware tries them too.
func (b *builder) bootOrder() string {
	devices := append([]string{}, b.vm.BootOrder...)
	for _, c := range b.vm.Controllers {
		for _, i := range b.on(c) {
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
