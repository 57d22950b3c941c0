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
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// set by the API server; distinguishes objects of the same name
	UID string `json:"uid,omitempty"`
	// set by the API server; changes with each write
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// empty is an object without fields whose presence has a meaning.
type empty struct{}

// virtualMachine is a VirtualMachine of kubevirt.io/v1.
type virtualMachine struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   meta   `json:"metadata"`
	Spec       vmSpec `json:"spec"`
}

// vmSpec is a VirtualMachineSpec.
type vmSpec struct {
	RunStrategy string     `json:"runStrategy"`
	Template    vmTemplate `json:"template"`
}

// vmTemplate is a VirtualMachineInstanceTemplateSpec.
type vmTemplate struct {
	Spec instanceSpec `json:"spec"`
}

// instanceSpec is a VirtualMachineInstanceSpec.
type instanceSpec struct {
	Architecture string `json:"architecture"`
	// seconds from the shutdown request until the VM is killed
	Grace    int       `json:"terminationGracePeriodSeconds"`
	Domain   domain    `json:"domain"`
	Networks []network `json:"networks,omitempty"`
	Volumes  []volume  `json:"volumes,omitempty"`
}

// domain is a DomainSpec.
type domain struct {
	Machine  machine   `json:"machine"`
	CPU      cpu       `json:"cpu"`
	Memory   memory    `json:"memory"`
	Firmware firmware  `json:"firmware"`
	Features *features `json:"features,omitempty"`
	Clock    clock     `json:"clock"`
	Devices  devices   `json:"devices"`
}

type machine struct {
	Type string `json:"type"` // "q35"
}

type cpu struct {
	Sockets int `json:"sockets"`
	Cores   int `json:"cores"`
	Threads int `json:"threads"`
}

type memory struct {
	Guest string `json:"guest"` // quantity, such as "4Gi"
}

type firmware struct {
	UUID       string     `json:"uuid,omitempty"`   // SMBIOS UUID
	Serial     string     `json:"serial,omitempty"` // SMBIOS serial number
	Bootloader bootloader `json:"bootloader"`
}

// bootloader has exactly one of its fields set.
type bootloader struct {
	BIOS *empty `json:"bios,omitempty"`
	EFI  *efi   `json:"efi,omitempty"`
}

// efi always contains both fields, because KubeVirt enables secure boot by default.
type efi struct {
	SecureBoot bool `json:"secureBoot"`
	Persistent bool `json:"persistent"` // variables survive a restart of the VM
}

type features struct {
	SMM enabled `json:"smm"`
}

type enabled struct {
	Enabled bool `json:"enabled"`
}

type clock struct {
	UTC   *empty `json:"utc"` // the hardware clock shows UTC
	Timer timer  `json:"timer"`
}

type timer struct {
	HPET ticks `json:"hpet"`
	PIT  ticks `json:"pit"`
	RTC  ticks `json:"rtc"`
}

type ticks struct {
	Present *bool  `json:"present,omitempty"`
	Policy  string `json:"tickPolicy,omitempty"` // "catchup" or "delay", as in libvirt
}

type devices struct {
	Disks      []diskDevice `json:"disks,omitempty"`
	Interfaces []card       `json:"interfaces,omitempty"`
	// false prevents the card that KubeVirt adds if none is listed
	PodCard *bool       `json:"autoattachPodInterface,omitempty"`
	TPM     *persistent `json:"tpm,omitempty"`
}

type persistent struct {
	Persistent bool `json:"persistent"` // the TPM's state survives a restart of the VM
}

type diskDevice struct {
	Name      string  `json:"name"` // name of a volume
	Disk      diskBus `json:"disk"`
	Serial    string  `json:"serial,omitempty"`
	BootOrder uint    `json:"bootOrder,omitempty"` // position from 1; zero to not boot from it
}

type diskBus struct {
	Bus string `json:"bus"`
}

type card struct {
	Name       string `json:"name"`
	Model      string `json:"model"`
	MAC        string `json:"macAddress,omitempty"`
	Masquerade *empty `json:"masquerade,omitempty"` // NAT behind the pod's address; for the pod network
	Bridge     *empty `json:"bridge,omitempty"`     // layer-2 connection; for Multus networks
	State      string `json:"state,omitempty"`      // "down" to disconnect the link
	BootOrder  uint   `json:"bootOrder,omitempty"`
}

// network has exactly one of Pod and Multus set.
type network struct {
	Name   string  `json:"name"` // name of the card
	Pod    *empty  `json:"pod,omitempty"`
	Multus *multus `json:"multus,omitempty"`
}

type multus struct {
	Network string `json:"networkName"` // [NAMESPACE/]NAME of a NetworkAttachmentDefinition
}

type volume struct {
	Name       string    `json:"name"`
	DataVolume reference `json:"dataVolume"`
}

type reference struct {
	Name string `json:"name"`
}

// dataVolume is a DataVolume of cdi.kubevirt.io/v1beta1.
type dataVolume struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   meta     `json:"metadata"`
	Spec       diskSpec `json:"spec"`
}

type diskSpec struct {
	Source      source  `json:"source"`
	ContentType string  `json:"contentType"` // "kubevirt": a disk image, not an archive
	Storage     storage `json:"storage"`
}

type source struct {
	Upload *empty `json:"upload"` // the content comes from an upload
}

type storage struct {
	Class       string    `json:"storageClassName,omitempty"` // empty for the cluster's default
	AccessModes []string  `json:"accessModes,omitempty"`      // empty for the default of CDI's storage profile
	VolumeMode  string    `json:"volumeMode,omitempty"`       // empty for the default of CDI's storage profile
	Resources   resources `json:"resources"`
}

type resources struct {
	Requests requests `json:"requests"`
}

type requests struct {
	Storage string `json:"storage"` // quantity of the whole disk
}
