package inventory

// Condition is how an ESXi host is kept. What a host does not tell is zero.
type Condition struct {
	Power    string `json:"power"`    // policy: static (High Performance), dynamic (Balanced), low or custom
	Lockdown string `json:"lockdown"` // lockdownDisabled, lockdownNormal or lockdownStrict
}

// Kind is a kind of thing that a privilege is held on, by the API's name of its type.
type Kind string

// Kinds.
const (
	OnVM        Kind = "VirtualMachine"
	OnHost      Kind = "HostSystem"
	OnDatastore Kind = "Datastore"
)

// Volume is a file system of a guest, as VMware Tools tell of it.
type Volume struct {
	Path     string `json:"path"` // where it is mounted: "/boot", `C:\`
	Capacity int64  `json:"capacity"`
	Free     int64  `json:"free"`
}
