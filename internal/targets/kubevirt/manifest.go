package kubevirt

import (
	"fmt"
	"maps"
	"strings"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// Objects are what a VM becomes.
type Objects struct {
	vm       virtualMachine
	disks    []dataVolume    // in the order of the VM's disks
	images   []targets.Image // that go into them
	warnings []inventory.Warning
}

// Manifests returns the objects of def as YAML, DataVolumes first, and a warning for each thing that
// is not as it was on VMware. Equal arguments come to equal text.
func Manifests(def targets.Definition, opts Options) ([]byte, []inventory.Warning, error) {
	o, err := objects(def, opts)
	if err != nil {
		return nil, nil, err
	}
	all := []any{}
	for _, d := range o.disks {
		all = append(all, d)
	}
	text, err := encode(append(all, o.vm)...)
	return text, o.warnings, err
}

// objects makes what def becomes.
func objects(def targets.Definition, opts Options) (*Objects, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	b := &builder{def: def, vm: def.VM, opts: opts, name: opts.name(def.VM), order: bootOrder(def.VM)}
	b.out.vm = virtualMachine{
		APIVersion: vmAPI, Kind: "VirtualMachine",
		Metadata: meta{Name: b.name, Namespace: opts.namespace(), Labels: labels(def.VM), Annotations: annotations(def)},
		Spec:     vmSpec{RunStrategy: "Halted", Template: vmTemplate{Spec: instanceSpec{Architecture: "amd64", Grace: shutdownGrace}}},
	}
	maps.Copy(b.out.vm.Metadata.Labels, tagLabels(def.VM))
	b.inscribe(b.out.vm.Metadata.Annotations)
	b.machine()
	b.firmware()
	for _, step := range []func() error{b.disks, b.cards} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("define VM %s: %w", def.VM.Name, err)
		}
	}
	return &b.out, nil
}

// shutdownGrace is how many seconds a guest has to shut down before it is stopped, as KubeVirt's own templates have it.
const shutdownGrace = 180

// A builder collects the objects of one VM.
type builder struct {
	def   targets.Definition
	vm    *inventory.VM
	opts  Options
	name  string
	order map[string]uint
	out   Objects
}

func (b *builder) warn(code, remedy, format string, args ...any) {
	b.out.warnings = append(b.out.warnings, inventory.Warning{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (b *builder) domain() *domain { return &b.out.vm.Spec.Template.Spec.Domain }

// virtio reports whether the guest was converted.
func (b *builder) virtio() bool { return b.def.Hardware.OnVirtio() }

// windows reports whether the guest is known to be Windows: from its registry, or else from what
// VMware was told.
func (b *builder) windows() bool {
	for _, g := range b.def.Guest {
		if g.OS.ID != "" {
			return g.OS.ID == guest.WindowsID
		}
	}
	return strings.HasPrefix(strings.ToLower(b.vm.GuestID), "win")
}

// machine is processors, memory and clock.
func (b *builder) machine() {
	sockets, cores := b.vm.Topology()
	absent := false
	d := b.domain()
	d.Machine.Type = "q35" // KubeVirt has no other for x86-64
	d.CPU = cpu{Sockets: sockets, Cores: cores, Threads: 1}
	d.Memory.Guest = quantity(b.vm.MemoryMiB << 20)
	d.Clock = clock{UTC: &empty{}, Timer: timer{
		HPET: ticks{Present: &absent}, PIT: ticks{Policy: "delay"}, RTC: ticks{Policy: "catchup"},
	}}
	if b.windows() {
		b.warn("clock", "say the guest's time zone in spec.template.spec.domain.clock.timezone, in place of utc: timezone: Europe/Berlin",
			"the hardware clock shows UTC and Windows takes it for local time: KubeVirt has no clock of local time")
	}
}

// firmware keeps the UUID, and the serial number that VMware derives from it, to which licences are bound.
func (b *builder) firmware() {
	f := &b.domain().Firmware
	f.UUID, f.Serial = b.vm.UUID, b.vm.Serial()
	if b.vm.Firmware != inventory.EFI {
		f.Bootloader.BIOS = &empty{}
		return
	}
	f.Bootloader.EFI = &efi{SecureBoot: b.vm.SecureBoot, Persistent: true}
	if b.vm.SecureBoot {
		b.domain().Features = &features{SMM: enabled{true}}
	}
	b.warn("efi-variables", `make sure the guest has \EFI\BOOT\BOOTX64.EFI (grub-install --removable), or choose its loader in the firmware's menu`,
		"the boot entries in the EFI variables stay behind: the guest boots from the fallback path")
	if b.vm.VTPM {
		b.domain().Devices.TPM = &persistent{true}
		b.warn("vtpm", "keep the BitLocker or LUKS recovery key at hand for the first boot",
			"the virtual TPM starts empty: VMware does not give its contents away")
	}
	b.warn("vm-state", "if the VM does not start: kubectl get storageclass; then name one in spec.configuration.vmStateStorageClass of the KubeVirt resource",
		"EFI variables and TPM are kept in a volume of KubeVirt's own, which needs a storage class")
}

// quantity writes bytes as Kubernetes does, exactly: in the largest unit that leaves no rest.
func quantity(n int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti"}
	at := 0
	for n > 0 && n%1024 == 0 && at < len(units)-1 {
		n, at = n/1024, at+1
	}
	return fmt.Sprintf("%d%s", n, units[at])
}
