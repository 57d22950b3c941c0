package inventory

// Condition is the configuration of an ESXi host that affects migrations. Fields that a host does not
// report are empty.
type Condition struct {
	Power    string `json:"power"`    // policy: static (High Performance), dynamic (Balanced), low or custom
	Lockdown string `json:"lockdown"` // lockdownDisabled, lockdownNormal or lockdownStrict
}

// Kind is the type of an object that privileges apply to, as the API names it.
type Kind string

// Kinds.
const (
	OnVM        Kind = "VirtualMachine"
	OnHost      Kind = "HostSystem"
	OnDatastore Kind = "Datastore"
)

// Volume is a file system of a guest, as VMware Tools report it.
type Volume struct {
	Path     string `json:"path"`     // mount point: "/boot", `C:\`
	Capacity int64  `json:"capacity"` // size in bytes
	Free     int64  `json:"free"`     // free bytes
}
