package bench

import (
	"fmt"
	"math"
	"time"
)

// MiB is the number of bytes of a mebibyte, the unit of all rates.
const MiB = 1 << 20

// A Row is one measurement of one Setup. A zero was not measured.
type Row struct {
	Setup
	Origin    string  `json:"origin"`           // author of the measurement
	Seconds   float64 `json:"seconds"`          // from the first requested byte to the last written one
	Allocated int64   `json:"allocated"`        // bytes of the disks that hold data
	Wire      float64 `json:"wireMiBs"`         // allocated bytes over the network, MiB/s
	Read      Device  `json:"read,omitzero"`    // counters of the source
	Written   Device  `json:"written,omitzero"` // counters of the destination
	CPU       float64 `json:"cpu,omitempty"`    // processor seconds of the process that measured
	// TCP segments that this machine retransmitted; nil if not counted
	Retransmits *int64            `json:"retransmits,omitempty"`
	Absent      map[string]string `json:"absent,omitempty"` // reasons of missing measurements by key
	At          time.Time         `json:"at,omitzero"`      // end of the measurement
	On          Conditions        `json:"on,omitzero"`      // machine and media of the measurement
	Note        string            `json:"note,omitempty"`   // remark for the reader
}

// Device contains the counters of one end.
type Device struct {
	IOPS float64 `json:"iops,omitempty"` // requests per second
	MiBs float64 `json:"mibs,omitempty"` // MiB per second
	Busy float64 `json:"busy,omitempty"` // share of time with a request in progress, 0 to 1: iostat's %util
}

// Conditions contains what a rate depends on in addition to the Setup.
type Conditions struct {
	Version string   `json:"version,omitempty"` // version of decamp
	Commit  string   `json:"commit,omitempty"`  // commit of decamp's build
	Host    string   `json:"host,omitempty"`    // product and version of the source
	Kernel  string   `json:"kernel,omitempty"`  // kernel of this machine
	CPU     string   `json:"cpu,omitempty"`     // model of the processor
	Cores   int      `json:"cores,omitempty"`   // number of processors
	NIC     string   `json:"nic,omitempty"`     // network interface towards the source
	Storage string   `json:"storage,omitempty"` // file system and device of the destination
	VMs     []string `json:"vms,omitempty"`     // VMs that were read
	Folders []string `json:"folders,omitempty"` // folders that were written
	Fill    float64  `json:"fill,omitempty"`    // part of the disks that holds data, 0 to 1
	Seed    uint64   `json:"seed,omitempty"`    // seed of a Pattern
}

// contradicts is the relative difference of a rate and a duration from which one of
// them must be wrong. Smaller differences are rounding of the disks' sizes.
const contradicts = 0.25

// mostMiBs is a rate above that of all memory, in MiB/s.
const mostMiBs = 1e9

// Rate returns MiB/s of allocated bytes. If the reported rate contradicts the duration,
// the duration counts, because it was measured with a clock.
func (r Row) Rate() float64 {
	// A row without a reported rate has a duration.
	if r.Contradicts() || r.Wire == 0 {
		return r.timedRate()
	}
	return r.Wire
}

// Contradicts reports whether the reported rate is inconsistent with the duration.
func (r Row) Contradicts() bool {
	return r.Wire > 0 && r.Seconds > 0 && math.Abs(r.Wire/r.timedRate()-1) > contradicts
}

// timedRate returns the rate from size and duration, in MiB/s.
func (r Row) timedRate() float64 { return float64(r.Allocated) / MiB / r.Seconds }

// Duration returns Seconds as a time.Duration.
func (r Row) Duration() time.Duration { return time.Duration(r.Seconds * float64(time.Second)) }

// Check returns an error for missing or impossible values in an imported row.
func (r Row) Check() error {
	s, err := ParseName(r.Name())
	switch {
	case err != nil:
		return err
	case r.Export != s.Export:
		return fmt.Errorf("export %q: want async or sync; with https and nfc sync or nothing", r.Export)
	case r.Setup != s:
		return fmt.Errorf("%s: the row has values that its name does not contain", r.Name())
	case !(r.Seconds > 0) || math.IsInf(r.Seconds, 0) || r.Allocated <= 0:
		return fmt.Errorf("%s: seconds and allocated (bytes) have to be more than nothing", r.Name())
	case !(r.Wire >= 0 && r.Wire < mostMiBs && r.timedRate() < mostMiBs):
		return fmt.Errorf("%s: a rate of %v MiB/s, by the clock %v", r.Name(), r.Wire, r.timedRate())
	}
	return nil
}
