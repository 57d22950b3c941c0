package vsphere

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// Config describes an emulated ESXi or vCenter. The zero value is an ESXi without VMs, with
// one VMFS datastore "datastore1", user root and password "lab-password".
type Config struct {
	// folder for the files of datastores; "" creates a temporary folder that Close removes
	Dir         string `json:"dir,omitempty"`
	Addr        string `json:"addr,omitempty"`        // host:port to listen on; default 127.0.0.1:0
	ControlAddr string `json:"controlAddr,omitempty"` // loopback host:port of the control API; default 127.0.0.1:0
	Version     string `json:"version,omitempty"`     // product version; default 8.0.3
	// name of the only account; default root, vCenter administrator@vsphere.local
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"` // password of the account; default lab-password

	VCenter     bool         `json:"vcenter,omitempty"`     // whether to emulate a vCenter instead of an ESXi host
	Datacenters []Datacenter `json:"datacenters,omitempty"` // vCenter only; default one with two hosts in a folder
	// vCenter only: whether each ESXi host serves /folder at its own address
	HostListeners bool        `json:"hostListeners,omitempty"`
	Datastores    []Datastore `json:"datastores,omitempty"` // datastores; default one VMFS datastore, vCenter two
	VMs           []VM        `json:"vms,omitempty"`        // VMs that exist at the start

	Tagging  Tagging   `json:"tagging,omitzero"` // vCenter only
	NFS      NFS       `json:"nfs,omitzero"`     // behaviour of NFS mounts
	SSH      SSH       `json:"ssh,omitzero"`     // SSH servers of the hosts
	NFC      NFC       `json:"nfc,omitzero"`     // NFC servers of the hosts
	Limits   Limits    `json:"limits"`           // limits of connections and rates
	Sessions Sessions  `json:"sessions"`         // rules for sessions and logins
	Host     HostState `json:"host,omitzero"`    // state of each host
	CBT      CBT       `json:"cbt"`              // answers of QueryChangedDiskAreas
	Locks    LockMode  `json:"locks,omitempty"`  // files of running VMs that cannot be read; default LockAll
	Faults   []Fault   `json:"faults,omitempty"` // active from the start

	// whether the host has the free licence: changes fail with RestrictedVersion
	ReadOnlyLicence bool      `json:"readOnlyLicence,omitempty"`
	LicenceEdition  string    `json:"licenceEdition,omitempty"` // edition key of such a licence; default esxBasic
	EvaluationEnds  time.Time `json:"evaluationEnds,omitzero"`  // end of the evaluation of an ESXi without that licence; not reported if zero
	Lacks           []string  `json:"lacks,omitempty"`          // privileges that the account lacks; calls that require one are denied
	HTTP2           bool      `json:"http2,omitempty"`          // whether to offer h2 by ALPN, as ESXi 8 does

	Certificate *tls.Certificate `json:"-"` // certificate of Addr with its key; nil creates one

	Clock func() time.Time `json:"-"` // clock of sessions, lockout and guest shutdown; the real one if nil
	Log   *slog.Logger     `json:"-"` // log of the emulator; discarded if nil
}

// Limits shape the wire. Zero is no limit, except MaxConns. They can be changed while the
// lab runs (Lab.SetLimits).
type Limits struct {
	ConnRate      Bytes    `json:"connRate,omitempty"`      // body bytes/s of one connection; reports from real hosts: 36-60 MB/s
	DatastoreRate Bytes    `json:"datastoreRate,omitempty"` // body bytes/s of one datastore, shared by its readers
	Latency       Duration `json:"latency,omitempty"`       // before the first byte of each /folder reply
	MaxRequests   int      `json:"maxRequests,omitempty"`   // /folder requests at a time; above it 503
	MaxConns      int      `json:"maxConns,omitempty"`      // TLS connections; above it they are reset; default 128 (KB 383231), vCenter 2048 (KB 344920)
}

// Sessions are the rules for sessions and logins. Zero fields have the defaults of a real host.
type Sessions struct {
	Idle      Duration `json:"idle,omitempty"`      // time without SOAP calls after which a session ends; default 30m
	Max       int      `json:"max,omitempty"`       // most sessions at a time; default 500
	LockAfter int      `json:"lockAfter,omitempty"` // failed logins after which the account is locked; default 5
	LockFor   Duration `json:"lockFor,omitempty"`   // duration of the lock; default 15m
}

// CBT configures the answers of QueryChangedDiskAreas.
type CBT struct {
	Granularity Bytes `json:"granularity,omitempty"` // areas are rounded outwards to multiples of it; default 64 KiB
	MaxAreas    int   `json:"maxAreas,omitempty"`    // most areas in one answer; default 2000
	// whether queries across a growth of the disk fail, instead of being wrong
	GrowthFails bool `json:"growthFails,omitempty"`
	// whether each hole has its own answer without areas: legal, and known to end loops of careless
	// clients early
	EmptyPages bool `json:"emptyPages,omitempty"`
}

// LockMode selects the files of a running VM that /folder refuses to serve.
type LockMode string

const (
	// LockAll refuses every data file of a running VM, also the base below a snapshot:
	// VMFS6 and ESXi 7 or later. It is the default.
	LockAll LockMode = "all"
	// LockActive refuses only the file being written: the reports from older hosts.
	LockActive LockMode = "active"
)

// LoadConfig reads a Config from a JSON file. Unknown fields are errors, so that a misspelled field
// does not start a different emulation.
func LoadConfig(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read emulator configuration: %w", err)
	}
	cfg, err := parseConfig(data)
	if err != nil {
		return Config{}, fmt.Errorf("parse emulator configuration %s: %w", path, err)
	}
	return cfg, nil
}

// parseConfig decodes and validates a configuration. It returns it without defaults.
func parseConfig(data []byte) (Config, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var cfg Config
	if err := dec.Decode(&cfg); err != nil {
		return Config{}, err
	}
	full := cfg.withDefaults()
	return cfg, full.validate()
}

// withDefaults returns the configuration with every zero field set to its default.
func (c Config) withDefaults() Config {
	setDefault(&c.Addr, "127.0.0.1:0")
	setDefault(&c.ControlAddr, "127.0.0.1:0")
	setDefault(&c.Version, "8.0.3")
	setDefault(&c.Password, "lab-password")
	setDefault(&c.Locks, LockAll)
	setDefault(&c.Sessions.Idle, Duration(30*time.Minute))
	setDefault(&c.Sessions.Max, 500)
	setDefault(&c.Sessions.LockAfter, 5)
	setDefault(&c.Sessions.LockFor, Duration(900*time.Second))
	setDefault(&c.CBT.Granularity, 64<<10)
	setDefault(&c.CBT.MaxAreas, 2000)
	setDefault(&c.NFS.MaxVolumes, maxVolumes)
	c.Host.setDefaults()
	c.Tagging.setDefaults(c.Version)
	if c.VCenter {
		setDefault(&c.User, "administrator@vsphere.local")
		setDefault(&c.Limits.MaxConns, 2048)
	}
	setDefault(&c.User, "root")
	setDefault(&c.Limits.MaxConns, 128)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Datacenters = c.allDatacenters()
	c.Datastores = c.allDatastores()
	c.VMs = c.allVMs()
	return c
}

// setDefault sets *v to d if it is the zero value.
func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// now returns the time of Config.Clock.
func (c *Config) now() time.Time {
	if c.Clock != nil {
		return c.Clock()
	}
	return time.Now()
}
