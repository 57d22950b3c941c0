package bench

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// published.json is what others measured: facts, with their origin. The rates of its matrix are
// of one VM of 32 GiB with about 19 GiB allocated, which vmkfstools cloned onto NFS.
//
//go:embed published.json
var publishedJSON []byte

// Published is all that the product starts from.
type Published struct {
	Matrix []Row `json:"matrix"`
	HTTPS  HTTPS `json:"https"`
	MTV    MTV   `json:"mtv"`
}

// HTTPS is a host's /folder over one 1 GbE link.
type HTTPS struct {
	Origin string     `json:"origin"`
	Rows   []HTTPSRow `json:"rows"`
}

// HTTPSRow is what some connections gave together.
type HTTPSRow struct {
	Connections int        `json:"connections"`
	Protocol    string     `json:"protocol"` // h1 or h2
	MTU         int        `json:"mtu"`
	Megabits    [2]float64 `json:"mbits"` // Mbit/s, the least and the most seen
}

// MiBs returns the middle of the measured range.
func (r HTTPSRow) MiBs() float64 { return (r.Megabits[0] + r.Megabits[1]) / 2 * 1e6 / 8 / MiB }

// MTV is the Migration Toolkit for Virtualization, which reads by VDDK.
type MTV struct {
	Origin  string   `json:"origin"`
	DiskGiB float64  `json:"diskGiB"` // used, of each VM's disk
	Cold    []MTVRow `json:"cold"`
	Warm    []MTVRow `json:"warm"`
}

// MTVRow is one run of it.
type MTVRow struct {
	VMs      int     `json:"vms"`
	Hosts    int     `json:"hosts"`
	Disks    int     `json:"disks"` // disks of all VMs
	Plans    int     `json:"plans"`
	Inflight int     `json:"inflight,omitempty"` // concurrent VMs of a host; 0 if unknown
	Minutes  float64 `json:"minutes,omitempty"`
	MiBs     float64 `json:"mibs,omitempty"` // all together
	Note     string  `json:"note,omitempty"`
}

var published = sync.OnceValue(func() Published {
	var p Published
	if err := json.Unmarshal(publishedJSON, &p); err != nil {
		panic(fmt.Sprintf("published.json: %v", err)) // it is part of the binary
	}
	return p
})

// Seed returns the published measurements. They are the caller's to change.
func Seed() Published {
	p := published()
	p.Matrix = slices.Clone(p.Matrix)
	p.HTTPS.Rows = slices.Clone(p.HTTPS.Rows)
	p.MTV.Cold, p.MTV.Warm = slices.Clone(p.MTV.Cold), slices.Clone(p.MTV.Warm)
	return p
}
