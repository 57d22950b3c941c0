package bench

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// publishedJSON contains published measurements with their origin. The rates of its
// matrix are of one VM of 32 GiB with about 19 GiB allocated, which vmkfstools cloned
// onto NFS.
//
//go:embed published.json
var publishedJSON []byte

// Published contains all embedded measurements.
type Published struct {
	Matrix []Row `json:"matrix"` // rates of clones onto NFS
	HTTPS  HTTPS `json:"https"`  // rates of downloads from /folder
	MTV    MTV   `json:"mtv"`    // rates of another tool, with VDDK
}

// HTTPS contains rates of a host's /folder over one link of 1 GbE.
type HTTPS struct {
	Origin string     `json:"origin"` // author of the measurements
	Rows   []HTTPSRow `json:"rows"`   // one per number of connections
}

// HTTPSRow is the total rate of several connections.
type HTTPSRow struct {
	Connections int        `json:"connections"` // number of parallel connections
	Protocol    string     `json:"protocol"`    // h1 or h2
	MTU         int        `json:"mtu"`         // bytes
	Megabits    [2]float64 `json:"mbits"`       // Mbit/s, smallest and largest
}

// MiBs returns the middle of the measured range in MiB/s.
func (r HTTPSRow) MiBs() float64 { return (r.Megabits[0] + r.Megabits[1]) / 2 * 1e6 / 8 / MiB }

// MTV contains rates of the Migration Toolkit for Virtualization, which reads with
// VDDK.
type MTV struct {
	Origin  string   `json:"origin"`  // author of the measurements
	DiskGiB float64  `json:"diskGiB"` // GiB of data on each disk
	Cold    []MTVRow `json:"cold"`    // runs with VMs that were off
	Warm    []MTVRow `json:"warm"`    // runs with VMs that ran
}

// MTVRow is one run of the toolkit.
type MTVRow struct {
	VMs      int     `json:"vms"`                // number of VMs
	Hosts    int     `json:"hosts"`              // number of source hosts
	Disks    int     `json:"disks"`              // disks of all VMs
	Plans    int     `json:"plans"`              // number of migration plans
	Inflight int     `json:"inflight,omitempty"` // concurrent VMs of a host; 0 if unknown
	Minutes  float64 `json:"minutes,omitempty"`  // duration; 0 if unknown
	MiBs     float64 `json:"mibs,omitempty"`     // total rate in MiB/s; 0 if unknown
	Note     string  `json:"note,omitempty"`     // remark of the author
}

// published decodes publishedJSON once.
var published = sync.OnceValue(func() Published {
	var p Published
	if err := json.Unmarshal(publishedJSON, &p); err != nil {
		panic(fmt.Sprintf("published.json: %v", err)) // the embedded file is invalid
	}
	return p
})

// Seed returns a copy of the published measurements. The caller may change it.
func Seed() Published {
	p := published()
	p.Matrix = slices.Clone(p.Matrix)
	p.HTTPS.Rows = slices.Clone(p.HTTPS.Rows)
	p.MTV.Cold, p.MTV.Warm = slices.Clone(p.MTV.Cold), slices.Clone(p.MTV.Warm)
	return p
}
