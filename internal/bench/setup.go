package bench

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Setup is the path of a disk's data, from the datastore to the image, with the
// degree of concurrency.
type Setup struct {
	Source      string    `json:"source"`              // medium of the datastore: hdd, ssd, nvme; Pattern if nothing is read
	Transport   Transport `json:"transport,omitempty"` // transport; empty for NFS
	Destination string    `json:"destination"`         // medium of the image: hdd, ssd, nvme, tmpfs; Null if nothing is written
	NIC         string    `json:"nic,omitempty"`       // slowest link of the path: 1g, 10g, 25g; empty with Pattern
	MTU         int       `json:"mtu,omitempty"`       // bytes, of the whole path; 0 with Pattern
	Export      Export    `json:"export,omitempty"`    // NFS export option; empty for the transport's default
	Streams     int       `json:"streams,omitempty"`   // streams per disk; 0 for the transport's default
	Together    int       `json:"parallel,omitempty"`  // concurrent VMs; 0 means one
	Copies      int       `json:"copies,omitempty"`    // destinations written from one read; 0 means one
}

// The ends that stand in for a real one, to measure the other alone.
const (
	Pattern = "pattern" // source whose data is computed
	Null    = "null"    // destination that discards its data
)

// Transport names how data crosses the network.
type Transport string

// The transports that rows are of. OverNFS is the host's own clone onto an NFS export:
// that of the published rows.
const (
	OverNFS     Transport = ""        // clone by the host onto an NFS export, as in the published rows
	OverLanding Transport = "landing" // copy by the host to decamp's NFS server
	OverHTTPS   Transport = "https"   // download from /folder
	OverNFC     Transport = "nfc"     // reads with NFC
)

// String returns the name of the transport in names of rows.
func (t Transport) String() string {
	if t == OverNFS {
		return "nfs"
	}
	return string(t)
}

// defaultExport returns the export option that a transport implies, or "".
func (t Transport) defaultExport() Export {
	if t == OverNFS || t == OverLanding {
		return Async
	}
	return ""
}

// Export determines when an NFS server acknowledges a write.
type Export string

// The two that /etc/exports has words for. The landing answers like Async, and proves
// the image afterwards.
const (
	Async Export = "async" // acknowledged from memory; a landing behaves so and verifies the image later
	Sync  Export = "sync"  // acknowledged after the data is on the medium
)

// Name returns the setup in the words of the published guide,
// esxi_{src}_nfs_{dst}_{nic}_mtu{mtu}, with another transport in place of nfs, and with
// suffixes for differences: _sync, _x8 for streams, _vms4 for concurrent VMs, _to3 for
// destinations. Without a source it is pattern_{dst}.
func (s Setup) Name() string {
	name := fmt.Sprintf("esxi_%s_%s_%s_%s_mtu%d", s.Source, s.Transport, s.Destination, s.NIC, s.MTU)
	if s.Source == Pattern {
		name = Pattern + "_" + s.Destination
	}
	if s.Export == Sync {
		name += "_sync"
	}
	for _, n := range []struct {
		word  string
		count int
	}{{"_x", s.Streams}, {"_vms", s.Together}, {"_to", s.Copies}} {
		if n.count != 0 {
			name += n.word + strconv.Itoa(n.count)
		}
	}
	return name
}

const (
	// suffixes of a name
	nameEnd    = `(_sync)?(?:_x([1-9][0-9]{0,3}))?(?:_vms([1-9][0-9]{0,3}))?(?:_to([1-9][0-9]{0,3}))?$`
	mediumName = `([a-z0-9]+)` // name of a medium
)

var (
	// setupName matches the name of a setup with a source.
	setupName = regexp.MustCompile(`^esxi_` + mediumName + `_(nfs|landing|https|nfc)_` + mediumName + `_([0-9]+g)_mtu([1-9][0-9]{2,4})` + nameEnd)
	// patternName matches the name of a setup without a source.
	patternName = regexp.MustCompile(`^pattern_` + mediumName + nameEnd)
)

// ParseName parses the result of Name.
func ParseName(name string) (Setup, error) {
	if m := patternName.FindStringSubmatch(name); m != nil {
		return Setup{Source: Pattern, Destination: m[1]}.withSuffixes(m[2:]), nil
	}
	m := setupName.FindStringSubmatch(name)
	if m == nil || m[1] == Pattern {
		return Setup{}, fmt.Errorf("row %q: want esxi_SOURCE_TRANSPORT_DESTINATION_NIC_mtuMTU, such as esxi_ssd_nfs_nvme_25g_mtu9000", name)
	}
	s := Setup{Source: m[1], Transport: Transport(m[2]), Destination: m[3], NIC: m[4], MTU: parseCount(m[5])}
	if m[2] == OverNFS.String() {
		s.Transport = OverNFS
	}
	s.Export = s.Transport.defaultExport()
	return s.withSuffixes(m[6:]), nil
}

// withSuffixes returns s with the suffixes of a name: sync, streams, VMs and
// destinations.
func (s Setup) withSuffixes(end []string) Setup {
	if end[0] != "" {
		s.Export = Sync
	}
	s.Streams, s.Together, s.Copies = parseCount(end[1]), parseCount(end[2]), parseCount(end[3])
	return s
}

// parseCount parses digits that a regular expression matched; 0 for an empty string.
func parseCount(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

// Modelled reports whether package advise has a model of the setup: one disk that a
// host writes over NFS, with a real source and destination.
func (s Setup) Modelled() bool {
	return (s.Transport == OverNFS || s.Transport == OverLanding) && s.Source != Pattern && s.Destination != Null && s.Streams == 0 && s.Together <= 1 && s.Copies <= 1
}

// Gigabits returns the speed of a NIC such as "25g" in Gbit/s.
func Gigabits(nic string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(strings.ToLower(nic), "g"), 64)
	if err != nil || !(n > 0 && n <= 1000) {
		return 0, fmt.Errorf("NIC %q: want its speed in Gbit/s, such as 10g", nic)
	}
	return n, nil
}
