package kubevirt

// The parts of KubeVirt's and CDI's objects that decamp writes, by the names of their fields. They
// are written here rather than taken from kubevirt.io/api, which brings eighty modules along; the tests hold
// what is written against the schemas that the two install in a cluster.

const (
	vmAPI   = "kubevirt.io/v1"
	diskAPI = "cdi.kubevirt.io/v1beta1"
)

// meta is the metadata of any object.
type meta struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
}

// empty is an object without fields, that says something by being there.
type empty struct{}

// virtualMachine is a VirtualMachine of kubevirt.io/v1.
type virtualMachine struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   meta   `json:"metadata"`
	Spec       vmSpec `json:"spec"`
}

type vmSpec struct {
	RunStrategy string     `json:"runStrategy"`
	Template    vmTemplate `json:"template"`
}

type vmTemplate struct {
	Spec instanceSpec `json:"spec"`
}

type instanceSpec struct {
	Architecture string    `json:"architecture"`
	Grace        int       `json:"terminationGracePeriodSeconds"`
	Domain       domain    `json:"domain"`
	Networks     []network `json:"networks,omitempty"`
	Volumes      []volume  `json:"volumes,omitempty"`
}

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
	Type string `json:"type"`
}

type cpu struct {
	Sockets int `json:"sockets"`
	Cores   int `json:"cores"`
	Threads int `json:"threads"`
}

type memory struct {
	Guest string `json:"guest"`
}

type firmware struct {
	UUID       string     `json:"uuid,omitempty"`
	Serial     string     `json:"serial,omitempty"`
	Bootloader bootloader `json:"bootloader"`
}

// bootloader has one of its two.
type bootloader struct {
	BIOS *empty `json:"bios,omitempty"`
	EFI  *efi   `json:"efi,omitempty"`
}

// efi says both, always: KubeVirt takes secure boot to be on where nothing is said.
type efi struct {
	SecureBoot bool `json:"secureBoot"`
	Persistent bool `json:"persistent"`
}

type features struct {
	SMM enabled `json:"smm"`
}

type enabled struct {
	Enabled bool `json:"enabled"`
}

type clock struct {
	UTC   *empty `json:"utc"`
	Timer timer  `json:"timer"`
}

type timer struct {
	HPET ticks `json:"hpet"`
	PIT  ticks `json:"pit"`
	RTC  ticks `json:"rtc"`
}

type ticks struct {
	Present *bool  `json:"present,omitempty"`
	Policy  string `json:"tickPolicy,omitempty"`
}

type devices struct {
	Disks      []diskDevice `json:"disks,omitempty"`
	Interfaces []card       `json:"interfaces,omitempty"`
	PodCard    *bool        `json:"autoattachPodInterface,omitempty"` // false: no card where none is listed
	TPM        *persistent  `json:"tpm,omitempty"`
}

type persistent struct {
	Persistent bool `json:"persistent"`
}

type diskDevice struct {
	Name      string  `json:"name"`
	Disk      diskBus `json:"disk"`
	Serial    string  `json:"serial,omitempty"`
	BootOrder uint    `json:"bootOrder,omitempty"`
}

type diskBus struct {
	Bus string `json:"bus"`
}

type card struct {
	Name       string `json:"name"`
	Model      string `json:"model"`
	MAC        string `json:"macAddress,omitempty"`
	Masquerade *empty `json:"masquerade,omitempty"`
	Bridge     *empty `json:"bridge,omitempty"`
	State      string `json:"state,omitempty"`
	BootOrder  uint   `json:"bootOrder,omitempty"`
}

// network has one of Pod and Multus.
type network struct {
	Name   string  `json:"name"`
	Pod    *empty  `json:"pod,omitempty"`
	Multus *multus `json:"multus,omitempty"`
}

type multus struct {
	Network string `json:"networkName"`
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
	ContentType string  `json:"contentType"`
	Storage     storage `json:"storage"`
}

type source struct {
	Upload *empty `json:"upload"`
}

type storage struct {
	Class       string    `json:"storageClassName,omitempty"`
	AccessModes []string  `json:"accessModes,omitempty"`
	VolumeMode  string    `json:"volumeMode,omitempty"`
	Resources   resources `json:"resources"`
}

type resources struct {
	Requests requests `json:"requests"`
}

type requests struct {
	Storage string `json:"storage"`
}
