package planfile

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/decamp/decamp/internal/fault"
)

// Matrix specifies a set of measurements: each source to each destination, over each link, by each
// transport.
type Matrix struct {
	// always 1
	Version    int        `yaml:"version" required:"true" min:"1" max:"1" doc:"version of the file format: 1"`
	Origin     Text       `yaml:"origin" required:"true" doc:"who measures and when; it is part of every row"`
	Source     Source     `yaml:"source" required:"true" doc:"ESXi host or vCenter with the VMs"`
	Disks      []Readable `yaml:"disks" required:"true" doc:"disks to read; their VMs must be powered off"`
	To         []Writable `yaml:"to" required:"true" doc:"folders in which images are written and then removed"`
	Links      []Link     `yaml:"links" required:"true" doc:"network links to measure, one after the other"`
	Transports []Method   `yaml:"transports" doc:"transports to measure; default: https"` // default https
	// default async
	Exports []Export `yaml:"exports" doc:"async, or sync: each write waits for the medium; default: async"`
	// nil: chosen by the transport
	Streams []Count `yaml:"streams" doc:"numbers of streams for each disk, with https and nfc; default: the transport's choice"`
	// nil: one VM
	Together []Count `yaml:"parallel" doc:"numbers of parallel VMs to measure in addition to one, if disks has that many"`
	// nil: one folder
	Copies []Count `yaml:"copies" doc:"numbers of folders that one read fills in addition to one, if to has that many"`
	Ends   bool    `yaml:"ends" doc:"first measure each end alone"` // default true
	// default: 8 GiB, 30 % filled, seed 1
	Computed Computed `yaml:"computed" doc:"generated disk for measurements of a destination alone"`
	NFC      NFC      `yaml:"nfc" doc:"options of transport nfc"`         // defaults as in a plan
	Landing  Landing  `yaml:"landing" doc:"options of transport landing"` // defaults as in a plan
}

// Readable lists VMs on one kind of datastore.
type Readable struct {
	// unique among the entries of disks
	Medium Medium `yaml:"medium" required:"true" doc:"medium of the datastore: hdd, ssd, nvme, or another word"`
	// at least one
	VMs []Text `yaml:"vms" required:"true" doc:"names of the VMs; one row reads the first one, other rows as many as parallel selects"`
}

// Writable lists folders on one kind of storage.
type Writable struct {
	// unique among the entries of to
	Medium Medium `yaml:"medium" required:"true" doc:"medium of the folders: hdd, ssd, nvme, tmpfs, or another word"`
	// of kind dir, each once
	Folders []Destination `yaml:"folders" required:"true" doc:"folders; one row fills the first one, other rows as many as copies selects"`
	// required by transport nfs
	NFS []Mounted `yaml:"nfs" doc:"with transport nfs: folders on this medium that an NFS server exports and the host has mounted"`
}

// Mounted is a folder that an NFS server exports and that hosts of the source have mounted as a
// datastore.
type Mounted struct {
	Folder    Destination `yaml:"folder" required:"true" doc:"path of the folder on this machine"`
	Datastore Text        `yaml:"datastore" required:"true" doc:"name of the datastore on the host"`
	Export    Export      `yaml:"export" required:"true" doc:"async or sync, as in /etc/exports"`
}

// Link is one network path between the source and this machine.
type Link struct {
	NIC NICSpeed `yaml:"nic" required:"true" doc:"speed of the slowest link on the path, such as 10g"`
	MTU int      `yaml:"mtu" required:"true" min:"100" max:"65536" doc:"MTU of the whole path in bytes; the interface of this machine must have the same"`
	// empty: the URL of the source
	URL URL `yaml:"url" doc:"URL of the source over this link; default: the URL in source"`
	// zero value: by the route
	Advertise IP `yaml:"advertise" doc:"with transport landing: IP address of this machine on this link"`
	// nil: no command; never run by a shell
	Prepare Program `yaml:"prepare" doc:"program and its arguments that run before the first row of the link, for example to set the MTU"`
}

// Computed is a disk whose data is generated, for measurements without a source.
type Computed struct {
	Size Size    `yaml:"size" doc:"size of the disk"`                            // bytes; at least 1 MiB, a multiple of 512
	Fill Percent `yaml:"fill" doc:"part of the disk that has data, such as 30%"` // 0 to 1
	// the same seed gives the same data
	Seed int `yaml:"seed" min:"1" max:"1000000000" doc:"seed that determines where the data is"`
}

type (
	Medium   string // medium of datastores and folders, as rows name it
	NICSpeed string // speed in Gbit/s: 10g
	Export   string // async or sync
	Method   string // a transport, or nfs: the host's own clone onto an export
	Count    int    // number of concurrent objects
)

const (
	mediumPattern = `^[a-z0-9]{1,32}$`   // part of the name of a row
	nicPattern    = `^[1-9][0-9]{0,2}g$` // 1g to 999g
	maxCount      = 16                   // largest Count
)

// reservedMedia are names that rows use for generated sources and for destinations that discard the
// data.
var reservedMedia = map[string]bool{"pattern": true, "null": true}

// textForm requires a word that rows can contain.
func (Medium) textForm() form { return form{pattern: mediumPattern, example: "ssd"} }

// textForm requires whole Gbit/s.
func (NICSpeed) textForm() form { return form{pattern: nicPattern, example: "10g"} }

// textForm lists the two modes of an NFS export.
func (Export) textForm() form { return form{words: []string{"async", "sync"}} }

// textForm lists the transports of plans, and nfs.
func (Method) textForm() form { return form{words: append(Transport("").textForm().words, "nfs")} }

// textForm also permits a YAML number.
func (Count) textForm() form {
	return form{pattern: `^[1-9][0-9]?$`, example: "8", number: true, maximum: maxCount}
}

// parseText refuses reservedMedia.
func (m *Medium) parseText(s string) error {
	if reservedMedia[s] {
		return fmt.Errorf("%q is reserved for a simulated source or destination", s)
	}
	return setMatching(m, s, m.textForm())
}

// parseText accepts what matches the pattern.
func (n *NICSpeed) parseText(s string) error { return setMatching(n, s, n.textForm()) }

// parseText accepts async and sync.
func (e *Export) parseText(s string) error { return setWord(e, s, e.textForm()) }

// parseText accepts the words of textForm.
func (w *Method) parseText(s string) error { return setWord(w, s, w.textForm()) }

// parseText accepts 1 to maxCount.
func (c *Count) parseText(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxCount {
		return fmt.Errorf("want a number from 1 to %d", maxCount)
	}
	*c = Count(n)
	return nil
}

// LoadMatrix reads a spec of measurements. The error has the first mistake and the number of the
// others.
func LoadMatrix(path string) (*Matrix, error) { return loadFile(path, ParseMatrix) }

// ParseMatrix parses the text of a spec as strictly as the text of a plan.
func ParseMatrix(text []byte) (*Matrix, Findings) {
	d, root := decodeRoot(text)
	if root == nil {
		return nil, d.found
	}
	plan := defaultFile()
	m := &Matrix{
		Source: plan.Source, Transports: []Method{"https"}, Exports: []Export{"async"}, Ends: true,
		Computed: Computed{Size: 8 << 30, Fill: 0.3, Seed: 1}, NFC: plan.Defaults.NFC, Landing: plan.Defaults.Landing,
	}
	d.decodeValue(root, reflect.ValueOf(m).Elem(), "")
	if len(d.found) == 0 {
		m.checkRules(d)
	}
	d.found.Sort()
	return m, d.found
}

// checkRules checks values that depend on others. Its findings go to d.
func (m *Matrix) checkRules(d *decoder) {
	m.checkDisks(d)
	m.checkFolders(d)
	m.checkLinks(d)
	exported := func(w Writable) bool { return len(w.NFS) > 0 }
	if slices.Contains(m.Transports, "nfs") && !slices.ContainsFunc(m.To, exported) {
		d.addRuleError("transports", "to: [{medium: hdd, folders: [dir:/srv/vm], nfs: [{folder: dir:/srv/nfs, datastore: nfs1, export: sync}]}]", "transport nfs requires a folder that the host has mounted")
	}
	if m.Computed.Size < 1<<20 || m.Computed.Size%512 != 0 {
		d.addRuleError("computed", "size: 8G", "the size must be at least 1 MiB, and a multiple of 512 bytes")
	}
}

// addRuleError adds a finding at a path for a value that contradicts others.
func (d *decoder) addRuleError(path, remedy, format string, args ...any) {
	err := fault.New(fault.Invalid, path+": "+format, args...).WithHint("%s", remedy)
	d.found = append(d.found, ErrorFinding("file", d.positions[path], "", err))
}

// uniqueMediumRemedy is the remedy for two entries with one medium.
const uniqueMediumRemedy = "use a different word for each: it names the rows"

// checkDisks requires a unique medium for each entry, and as many VMs as together selects.
func (m *Matrix) checkDisks(d *decoder) {
	media, named := map[Medium]bool{}, 0
	for i, r := range m.Disks {
		path := fmt.Sprintf("disks[%d]", i)
		if media[r.Medium] {
			d.addRuleError(path, uniqueMediumRemedy, "%s occurs twice", r.Medium)
		}
		media[r.Medium] = true
		named = max(named, len(r.VMs))
	}
	if n := maxOf(m.Together); n > named {
		d.addRuleError("parallel", "name more VMs, or reduce parallel", "parallel requires %d VMs, and no entry of disks has more than %d", n, named)
	}
}

// checkFolders requires a unique medium for each entry, unique folders, and as many of them as copies
// selects.
func (m *Matrix) checkFolders(d *decoder) {
	media, folders, named := map[Medium]bool{}, map[Destination]bool{}, 0
	for i, w := range m.To {
		path := fmt.Sprintf("to[%d]", i)
		if media[w.Medium] {
			d.addRuleError(path, uniqueMediumRemedy, "%s occurs twice", w.Medium)
		}
		media[w.Medium] = true
		named = max(named, len(w.Folders))
		for _, f := range w.Folders {
			if f.Kind() != Dir {
				d.addRuleError(path, "write dir:/FOLDER", "%s is not a folder", f)
			}
			if folders[f] {
				d.addRuleError(path, "name each folder once", "%s occurs twice", f)
			}
			folders[f] = true
		}
	}
	if n := maxOf(m.Copies); n > named {
		d.addRuleError("copies", "name more folders, or reduce copies", "copies requires %d folders, and no entry of to has more than %d", n, named)
	}
}

// checkLinks requires a unique pair of NIC and MTU for each link: rows have no other name for it.
func (m *Matrix) checkLinks(d *decoder) {
	for i, l := range m.Links {
		for _, other := range m.Links[:i] {
			if l.NIC == other.NIC && l.MTU == other.MTU {
				d.addRuleError(fmt.Sprintf("links[%d]", i), "remove one of them: NIC and MTU name the rows", "%s with MTU %d occurs twice", l.NIC, l.MTU)
			}
		}
	}
}

// maxOf returns the largest count; 0 for an empty list.
func maxOf(counts []Count) int {
	n := 0
	for _, c := range counts {
		n = max(n, int(c))
	}
	return n
}
