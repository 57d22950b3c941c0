package bench

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Setup is what a VM's disk went through: the layers from the datastore to the image.
type Setup struct {
	Source      string `json:"source"`           // what the datastore lies on: hdd, ssd, nvme
	Destination string `json:"destination"`      // what the image lies on: hdd, ssd, nvme, tmpfs
	NIC         string `json:"nic"`              // the slowest link in between: 1g, 10g, 25g
	MTU         int    `json:"mtu"`              // bytes, of the whole path
	Export      Export `json:"export,omitempty"` // how the NFS server answers; empty: no NFS
}

// Export is when an NFS server says that a write is done.
type Export string

// The two that /etc/exports has words for. The landing answers like Async, and proves the image
// afterwards.
const (
	Async Export = "async"
	Sync  Export = "sync" // once it is on the medium: every write waits for it
)

// Name is the setup in the words of the published guide, esxi_{src}_nfs_{dst}_{nic}_mtu{mtu},
// with _sync behind it where that is so.
func (s Setup) Name() string {
	name := fmt.Sprintf("esxi_%s_nfs_%s_%s_mtu%d", s.Source, s.Destination, s.NIC, s.MTU)
	if s.Export == Sync {
		name += "_sync"
	}
	return name
}

var setupName = regexp.MustCompile(`^esxi_([a-z0-9]+)_nfs_([a-z0-9]+)_([0-9]+g)_mtu([0-9]{3,5})(_sync)?$`)

// ParseName reads what Name writes.
func ParseName(name string) (Setup, error) {
	m := setupName.FindStringSubmatch(name)
	if m == nil {
		return Setup{}, fmt.Errorf("row %q: want esxi_SOURCE_nfs_DESTINATION_NIC_mtuMTU, such as esxi_ssd_nfs_nvme_25g_mtu9000", name)
	}
	mtu, err := strconv.Atoi(m[4])
	if err != nil {
		return Setup{}, err
	}
	s := Setup{Source: m[1], Destination: m[2], NIC: m[3], MTU: mtu, Export: Async}
	if m[5] != "" {
		s.Export = Sync
	}
	return s, nil
}

// Gigabits is what a NIC is sold as: "25g" is 25 Gbit/s.
func Gigabits(nic string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(strings.ToLower(nic), "g"), 64)
	if err != nil || !(n > 0 && n <= 1000) {
		return 0, fmt.Errorf("NIC %q: want its speed in Gbit/s, such as 10g", nic)
	}
	return n, nil
}
