package kubevirt

// The types in this file contain the fields of KubeVirt's and CDI's objects that decamp writes. The module
// kubevirt.io/api is not used, because it depends on eighty modules. The tests validate the written objects
// against the schemas that KubeVirt and CDI install in a cluster.

const (
	vmAPI   = "kubevirt.io/v1"          // API version of VirtualMachine
	diskAPI = "cdi.kubevirt.io/v1beta1" // API version of DataVolume
)

// meta is the metadata of an object (ObjectMeta).
type meta struct {
	Name        string            `json:"name"`                  // DNS label, unique within kind and namespace
	Namespace   string            `json:"namespace,omitempty"`   // empty in manifests for any namespace
	Labels      map[string]string `json:"labels,omitempty"`      // sourceLabel and tags
	Annotations map[string]string `json:"annotations,omitempty"` // identity and notes of the source VM
	// set by the API server; distinguishes objects of the same name
	UID string `json:"uid,omitempty"`
	// set by the API server; changes with each write
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// empty is an object without fields whose presence has a meaning.
type empty struct{}

// virtualMachine is a VirtualMachine of kubevirt.io/v1.
type virtualMachine struct {
	APIVersion string `json:"apiVersion"` // vmAPI
	Kind       string `json:"kind"`       // "VirtualMachine"
	Metadata   meta   `json:"metadata"`
	Spec       vmSpec `json:"spec"`
}

// vmSpec is a VirtualMachineSpec.
type vmSpec struct {
	RunStrategy string     `json:"runStrategy"` // "Halted" for a VM that is off
	Template    vmTemplate `json:"template"`    // definition of the instance
}

// vmTemplate is a VirtualMachineInstanceTemplateSpec.
type vmTemplate struct {
	Spec instanceSpec `json:"spec"`
}

// instanceSpec is a VirtualMachineInstanceSpec.
type instanceSpec struct {
	Architecture string `json:"architecture"` // "amd64"
	// seconds from the shutdown request until the VM is killed
	Grace    int       `json:"terminationGracePeriodSeconds"`
	Domain   domain    `json:"domain"`             // hardware
	Networks []network `json:"networks,omitempty"` // one for each card, in the order of the cards
	Volumes  []volume  `json:"volumes,omitempty"`  // one for each disk
}

// domain is a DomainSpec.
type domain struct {
	Machine  machine   `json:"machine"`
	CPU      cpu       `json:"cpu"`
	Memory   memory    `json:"memory"`
	Firmware firmware  `json:"firmware"`
	Features *features `json:"features,omitempty"` // nil for KubeVirt's defaults
	Clock    clock     `json:"clock"`
	Devices  devices   `json:"devices"` // disks, cards and TPM
}

// machine is the machine type (Machine).
type machine struct {
	Type string `json:"type"` // "q35"
}

// cpu is the CPU topology (CPU).
type cpu struct {
	Sockets int `json:"sockets"` // sockets as on VMware
	Cores   int `json:"cores"`   // cores in each socket
	Threads int `json:"threads"` // always 1
}

// memory is the size of the memory (Memory).
type memory struct {
	Guest string `json:"guest"` // quantity, such as "4Gi"
}

// firmware selects BIOS or EFI and sets the SMBIOS identity (Firmware).
type firmware struct {
	UUID       string     `json:"uuid,omitempty"`   // SMBIOS UUID
	Serial     string     `json:"serial,omitempty"` // SMBIOS serial number
	Bootloader bootloader `json:"bootloader"`
}

// bootloader has exactly one of its fields set.
type bootloader struct {
	BIOS *empty `json:"bios,omitempty"` // set for BIOS
	EFI  *efi   `json:"efi,omitempty"`  // set for EFI
}

// efi always contains both fields, because KubeVirt enables secure boot by default.
type efi struct {
	SecureBoot bool `json:"secureBoot"` // verify the boot loader's signature
	Persistent bool `json:"persistent"` // variables survive a restart of the VM
}

// features are processor features (Features).
type features struct {
	SMM enabled `json:"smm"` // system management mode, which secure boot requires
}

// enabled is a feature's state (FeatureState).
type enabled struct {
	Enabled bool `json:"enabled"`
}

// clock configures the hardware clock (Clock).
type clock struct {
	UTC   *empty `json:"utc"`   // the hardware clock shows UTC
	Timer timer  `json:"timer"` // timers as in VMs that package dir defines
}

// timer configures the timers (Timer).
type timer struct {
	HPET ticks `json:"hpet"` // absent
	PIT  ticks `json:"pit"`  // delays missed ticks
	RTC  ticks `json:"rtc"`  // catches up on missed ticks
}

// ticks configures one timer.
type ticks struct {
	Present *bool  `json:"present,omitempty"`    // nil means present
	Policy  string `json:"tickPolicy,omitempty"` // "catchup" or "delay", as in libvirt
}

// devices are the VM's devices (Devices).
type devices struct {
	Disks      []diskDevice `json:"disks,omitempty"`      // in the order of VMware's controllers
	Interfaces []card       `json:"interfaces,omitempty"` // in the order of the source's cards
	// false prevents the card that KubeVirt adds if none is listed
	PodCard *bool       `json:"autoattachPodInterface,omitempty"`
	TPM     *persistent `json:"tpm,omitempty"` // nil without a TPM
}

// persistent is a TPM device (TPMDevice).
type persistent struct {
	Persistent bool `json:"persistent"` // the TPM's state survives a restart of the VM
}

// diskDevice is a disk as the guest sees it (Disk).
type diskDevice struct {
	Name      string  `json:"name"`                // name of a volume
	Disk      diskBus `json:"disk"`                // kind of device, with its bus
	Serial    string  `json:"serial,omitempty"`    // empty on SATA
	BootOrder uint    `json:"bootOrder,omitempty"` // position from 1; zero to not boot from it
}

// diskBus selects the bus of a disk (DiskTarget).
type diskBus struct {
	Bus string `json:"bus"` // "sata", "scsi" or "virtio"
}

// card is a network card as the guest sees it (Interface).
type card struct {
	Name       string `json:"name"`                 // name of the network in instanceSpec.Networks
	Model      string `json:"model"`                // such as "e1000e"
	MAC        string `json:"macAddress,omitempty"` // empty if KubeVirt chooses it
	Masquerade *empty `json:"masquerade,omitempty"` // NAT behind the pod's address; for the pod network
	Bridge     *empty `json:"bridge,omitempty"`     // layer-2 connection; for Multus networks
	State      string `json:"state,omitempty"`      // "down" to disconnect the link
	BootOrder  uint   `json:"bootOrder,omitempty"`  // position from 1; zero to not boot from it
}

// network has exactly one of Pod and Multus set.
type network struct {
	Name   string  `json:"name"`             // name of the card
	Pod    *empty  `json:"pod,omitempty"`    // the pod network
	Multus *multus `json:"multus,omitempty"` // a NetworkAttachmentDefinition
}

// multus refers to a NetworkAttachmentDefinition (MultusNetwork).
type multus struct {
	Network string `json:"networkName"` // [NAMESPACE/]NAME of a NetworkAttachmentDefinition
}

// volume is the content of a disk (Volume).
type volume struct {
	Name       string    `json:"name"` // name that diskDevice refers to
	DataVolume reference `json:"dataVolume"`
}

// reference names a DataVolume in the same namespace (DataVolumeSource).
type reference struct {
	Name string `json:"name"` // name of the DataVolume
}

// dataVolume is a DataVolume of cdi.kubevirt.io/v1beta1.
type dataVolume struct {
	APIVersion string   `json:"apiVersion"` // diskAPI
	Kind       string   `json:"kind"`       // "DataVolume"
	Metadata   meta     `json:"metadata"`
	Spec       diskSpec `json:"spec"`
}

// diskSpec is a DataVolumeSpec.
type diskSpec struct {
	Source      source  `json:"source"`      // origin of the content
	ContentType string  `json:"contentType"` // "kubevirt": a disk image, not an archive
	Storage     storage `json:"storage"`     // size and class; CDI creates the claim
}

// source is a DataVolumeSource with an upload.
type source struct {
	Upload *empty `json:"upload"` // the content comes from an upload
}

// storage is a StorageSpec.
type storage struct {
	Class       string    `json:"storageClassName,omitempty"` // empty for the cluster's default
	AccessModes []string  `json:"accessModes,omitempty"`      // empty for the default of CDI's storage profile
	VolumeMode  string    `json:"volumeMode,omitempty"`       // empty for the default of CDI's storage profile
	Resources   resources `json:"resources"`
}

// resources are the resources of a claim (VolumeResourceRequirements).
type resources struct {
	Requests requests `json:"requests"`
}

// requests are the requested resources.
type requests struct {
	Storage string `json:"storage"` // quantity of the whole disk
}
