package bench

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Setup is what a VM's disk went through: the layers from the datastore to the image, and how
// many went at a time.
type Setup struct {
	Source      string    `json:"source"`              // medium of the datastore: hdd, ssd, nvme; Pattern means that nothing was read
	Transport   Transport `json:"transport,omitempty"` // empty: NFS
	Destination string    `json:"destination"`         // medium of the image: hdd, ssd, nvme, tmpfs; Null means that nothing was written
	NIC         string    `json:"nic,omitempty"`       // the slowest link in between: 1g, 10g, 25g; empty with Pattern
	MTU         int       `json:"mtu,omitempty"`       // bytes, of the whole path; 0 with Pattern
	Export      Export    `json:"export,omitempty"`    // when a write is done; empty: as the transport likes it
	Streams     int       `json:"streams,omitempty"`   // streams of each disk; 0 is the transport's preference
	Together    int       `json:"together,omitempty"`  // VMs at a time; 0: one
	Copies      int       `json:"copies,omitempty"`    // destinations that one reading fills; 0: one
}

// The ends that stand in for a real one, to measure the other alone.
const (
	Pattern = "pattern" // a source that is computed
	Null    = "null"    // a destination that throws everything away
)

// Transport is how the bytes come over the network.
type Transport string

// The transports that rows are of. OverNFS is the host's own clone onto an NFS export: that of the
// published rows.
const (
	OverNFS     Transport = ""
	OverLanding Transport = "landing"
	OverHTTPS   Transport = "https"
	OverNFC     Transport = "nfc"
)

// String is the transport's word in names.
func (t Transport) String() string {
	if t == OverNFS {
		return "nfs"
	}
	return string(t)
}

// answers returns the default export of a transport.
func (t Transport) answers() Export {
	if t == OverNFS || t == OverLanding {
		return Async
	}
	return ""
}

// Export determines when an NFS server acknowledges a write.
type Export string

// The two that /etc/exports has words for. The landing answers like Async, and proves the image
// afterwards.
const (
	Async Export = "async"
	Sync  Export = "sync" // once it is on the medium: every write waits for it
)

// Name returns the setup in the words of the published guide, esxi_{src}_nfs_{dst}_{nic}_mtu{mtu}, with
// another transport in place of nfs, and with suffixes for differences: _sync, _x8 for streams, _vms4
// for concurrent VMs, _to3 for destinations. Without a source it is pattern_{dst}.
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
	nameEnd    = `(_sync)?(?:_x([1-9][0-9]{0,3}))?(?:_vms([1-9][0-9]{0,3}))?(?:_to([1-9][0-9]{0,3}))?$`
	mediumName = `([a-z0-9]+)`
)

var (
	setupName   = regexp.MustCompile(`^esxi_` + mediumName + `_(nfs|landing|https|nfc)_` + mediumName + `_([0-9]+g)_mtu([1-9][0-9]{2,4})` + nameEnd)
	patternName = regexp.MustCompile(`^pattern_` + mediumName + nameEnd)
)

// ParseName reads what Name writes.
func ParseName(name string) (Setup, error) {
	if m := patternName.FindStringSubmatch(name); m != nil {
		return Setup{Source: Pattern, Destination: m[1]}.with(m[2:]), nil
	}
	m := setupName.FindStringSubmatch(name)
	if m == nil || m[1] == Pattern {
		return Setup{}, fmt.Errorf("row %q: want esxi_SOURCE_TRANSPORT_DESTINATION_NIC_mtuMTU, such as esxi_ssd_nfs_nvme_25g_mtu9000", name)
	}
	s := Setup{Source: m[1], Transport: Transport(m[2]), Destination: m[3], NIC: m[4], MTU: count(m[5])}
	if m[2] == OverNFS.String() {
		s.Transport = OverNFS
	}
	s.Export = s.Transport.answers()
	return s.with(m[6:]), nil
}

// with appends the suffixes of a name: sync, streams, VMs and destinations.
func (s Setup) with(end []string) Setup {
	if end[0] != "" {
		s.Export = Sync
	}
	s.Streams, s.Together, s.Copies = count(end[1]), count(end[2]), count(end[3])
	return s
}

// count is a number that the names' expression took; 0 where it took none.
func count(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

// Modelled reports whether the setup is of the kind that advise has a model of: one disk that a
// host pushes over NFS, from end to end.
func (s Setup) Modelled() bool {
	return (s.Transport == OverNFS || s.Transport == OverLanding) && s.Source != Pattern && s.Destination != Null && s.Streams == 0 && s.Together <= 1 && s.Copies <= 1
}

// Gigabits is what a NIC is sold as: "25g" is 25 Gbit/s.
func Gigabits(nic string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(strings.ToLower(nic), "g"), 64)
	if err != nil || !(n > 0 && n <= 1000) {
		return 0, fmt.Errorf("NIC %q: want its speed in Gbit/s, such as 10g", nic)
	}
	return n, nil
}
