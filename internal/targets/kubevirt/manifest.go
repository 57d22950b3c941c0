package kubevirt

import (
	"fmt"
	"maps"
	"strings"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// Objects are the Kubernetes objects of one VM.
type Objects struct {
	vm       virtualMachine      // the VirtualMachine
	disks    []dataVolume        // in the order of the VM's disks
	images   []targets.Image     // image of each element of disks
	warnings []inventory.Warning // differences from the source VM
}

// Manifests returns the objects of def as YAML, DataVolumes first, and a warning for each difference
// from the source
// VM. The result depends only on the arguments.
func Manifests(def targets.Definition, opts Options) ([]byte, []inventory.Warning, error) {
	o, err := newObjects(def, opts)
	if err != nil {
		return nil, nil, err
	}
	all := []any{}
	for _, d := range o.disks {
		all = append(all, d)
	}
	text, err := encodeYAML(append(all, o.vm)...)
	return text, o.warnings, err
}

// newObjects returns the objects for def, powered off.
func newObjects(def targets.Definition, opts Options) (*Objects, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	b := &builder{def: def, vm: def.VM, opts: opts, name: opts.objectName(def.VM), order: bootOrder(def.VM)}
	b.out.vm = virtualMachine{
		APIVersion: vmAPI, Kind: "VirtualMachine",
		Metadata: meta{Name: b.name, Namespace: opts.namespaceName(), Labels: sourceLabels(def.VM), Annotations: vmAnnotations(def)},
		Spec:     vmSpec{RunStrategy: "Halted", Template: vmTemplate{Spec: instanceSpec{Architecture: "amd64", Grace: shutdownGrace}}},
	}
	maps.Copy(b.out.vm.Metadata.Labels, tagLabels(def.VM))
	b.addTagNotes(b.out.vm.Metadata.Annotations)
	b.setMachine()
	b.setFirmware()
	for _, step := range []func() error{b.addDisks, b.addCards} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("define VM %s: %w", def.VM.Name, err)
		}
	}
	return &b.out, nil
}

// shutdownGrace is the time in seconds that a guest has for its shutdown. KubeVirt's templates use the
// same value.
const shutdownGrace = 180

// builder builds the objects of one VM.
type builder struct {
	def   targets.Definition // not modified
	vm    *inventory.VM      // def.VM
	opts  Options            // options of the platform
	name  string             // name of the VirtualMachine
	order map[string]uint    // boot positions by device
	out   Objects            // the result
}

// warn adds a warning. code is a stable identifier, remedy an instruction for the user.
func (b *builder) warn(code, remedy, format string, args ...any) {
	b.out.warnings = append(b.out.warnings, inventory.Warning{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// domainSpec returns the domain, for modification.
func (b *builder) domainSpec() *domain { return &b.out.vm.Spec.Template.Spec.Domain }

// usesVirtio reports whether the VM gets virtio hardware.
func (b *builder) usesVirtio() bool { return b.def.Hardware.OnVirtio() }

// isWindows reports whether the guest is known to be Windows: from its registry, or else from the guest
// ID in vSphere.
func (b *builder) isWindows() bool {
	for _, g := range b.def.Guest {
		if g.OS.ID != "" {
			return g.OS.ID == guest.WindowsID
		}
	}
	return strings.HasPrefix(strings.ToLower(b.vm.GuestID), "win")
}

// setMachine sets CPUs, memory and clock.
func (b *builder) setMachine() {
	sockets, cores := b.vm.Topology()
	absent := false
	d := b.domainSpec()
	d.Machine.Type = "q35" // KubeVirt has no other for x86-64
	d.CPU = cpu{Sockets: sockets, Cores: cores, Threads: 1}
	d.Memory.Guest = formatQuantity(b.vm.MemoryMiB << 20)
	d.Clock = clock{UTC: &empty{}, Timer: timer{
		HPET: ticks{Present: &absent}, PIT: ticks{Policy: "delay"}, RTC: ticks{Policy: "catchup"},
	}}
	if b.isWindows() {
		b.warn("clock", "set the guest's time zone in spec.template.spec.domain.clock.timezone, instead of utc: timezone: Europe/Berlin",
			"the hardware clock shows UTC, and Windows expects local time: KubeVirt has no clock with local time")
	}
}

// setFirmware sets the firmware with the VM's UUID and serial number. VMware derives the serial number
// from the UUID, and
// licences may depend on it.
func (b *builder) setFirmware() {
	f := &b.domainSpec().Firmware
	f.UUID, f.Serial = b.vm.UUID, b.vm.Serial()
	if b.vm.Firmware != inventory.EFI {
		f.Bootloader.BIOS = &empty{}
		return
	}
	f.Bootloader.EFI = &efi{SecureBoot: b.vm.SecureBoot, Persistent: true}
	if b.vm.SecureBoot {
		b.domainSpec().Features = &features{SMM: enabled{true}}
	}
	b.warn("efi-variables", `make sure the guest has \EFI\BOOT\BOOTX64.EFI (grub-install --removable), or choose its loader in the firmware's menu`,
		"the boot entries in the EFI variables are not migrated: the guest boots from the fallback path")
	if b.vm.VTPM {
		b.domainSpec().Devices.TPM = &persistent{true}
		b.warn("vtpm", "keep the BitLocker or LUKS recovery key at hand for the first boot",
			"the virtual TPM starts empty: VMware does not export its content")
	}
	b.warn("vm-state", "if the VM does not start: kubectl get storageclass; then name one in spec.configuration.vmStateStorageClass of the KubeVirt resource",
		"KubeVirt stores EFI variables and the TPM in a separate volume, which requires a storage class")
}

// formatQuantity returns n bytes as an exact Kubernetes quantity, in the largest unit without a
// remainder.
func formatQuantity(n int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti"}
	at := 0
	for n > 0 && n%1024 == 0 && at < len(units)-1 {
		n, at = n/1024, at+1
	}
	return fmt.Sprintf("%d%s", n, units[at])
}
