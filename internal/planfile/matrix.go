package planfile

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/decamp/decamp/internal/fault"
)

// Matrix is a set of measurements: each source to each destination, over each link, by each transport.
type Matrix struct {
	Version    int        `yaml:"version" required:"true" min:"1" max:"1" doc:"of this format: 1"`
	Origin     Text       `yaml:"origin" required:"true" doc:"who measures, and when: it stands in every row"`
	Source     Source     `yaml:"source" required:"true" doc:"where the VMs are"`
	Disks      []Readable `yaml:"disks" required:"true" doc:"disks to read, of powered-off VMs"`
	To         []Writable `yaml:"to" required:"true" doc:"where images are written, and removed again"`
	Links      []Link     `yaml:"links" required:"true" doc:"the ways between, one after the other"`
	Transports []Way      `yaml:"transports" doc:"how the bytes come; https else"`
	Exports    []Export   `yaml:"exports" doc:"async, and sync: every write waits for the medium; async else"`
	Streams    []Count    `yaml:"streams" doc:"of each disk, with https and nfc; as the transport likes it else"`
	Together   []Count    `yaml:"together" doc:"VMs at a time, beside one, where so many are named"`
	Copies     []Count    `yaml:"copies" doc:"folders that one reading fills, beside one, where so many are named"`
	Ends       bool       `yaml:"ends" doc:"measure each end alone first, too"`
	Computed   Computed   `yaml:"computed" doc:"the disk that destinations are measured with alone"`
	NFC        NFC        `yaml:"nfc" doc:"with transport nfc"`
	Landing    Landing    `yaml:"landing" doc:"with transport landing"`
}

// Readable is VMs that lie on one kind of datastore.
type Readable struct {
	Medium Medium `yaml:"medium" required:"true" doc:"medium of the datastore: hdd, ssd, nvme, or another word"`
	VMs    []Text `yaml:"vms" required:"true" doc:"their names; one row reads the first, others as many as together selects"`
}

// Writable is folders on one kind of storage.
type Writable struct {
	Medium  Medium        `yaml:"medium" required:"true" doc:"medium of the folders: hdd, ssd, nvme, tmpfs, or another word"`
	Folders []Destination `yaml:"folders" required:"true" doc:"one row fills the first, others as many as copies selects"`
	NFS     []Mounted     `yaml:"nfs" doc:"with transport nfs: folders there that an NFS server exports and the host has mounted"`
}

// Mounted is a folder that an NFS server exports, as a datastore of the source's hosts.
type Mounted struct {
	Folder    Destination `yaml:"folder" required:"true" doc:"where it is on this machine"`
	Datastore Text        `yaml:"datastore" required:"true" doc:"its name on the host"`
	Export    Export      `yaml:"export" required:"true" doc:"async or sync, as /etc/exports has it"`
}

// Link is one way between the source and this machine.
type Link struct {
	NIC       NICSpeed `yaml:"nic" required:"true" doc:"the slowest link on it, as 10g"`
	MTU       int      `yaml:"mtu" required:"true" min:"100" max:"65536" doc:"bytes, of the whole way; the interface here has to have it"`
	URL       URL      `yaml:"url" doc:"of the source by this way; that of source else"`
	Advertise IP       `yaml:"advertise" doc:"with transport landing: the IP of this machine on this way"`
	Prepare   []Text   `yaml:"prepare" doc:"a program and its arguments, run before the first row of the link: it sets the MTU, say"`
}

// Computed is a generated disk.
type Computed struct {
	Size Size    `yaml:"size" doc:"bytes of it"`
	Fill Percent `yaml:"fill" doc:"part of it that holds data, such as 30%"`
	Seed int     `yaml:"seed" min:"1" max:"1000000000" doc:"of where the data is"`
}

type (
	Medium   string // medium of datastores and folders, as rows name it
	NICSpeed string // speed in Gbit/s: 10g
	Export   string // async or sync
	Way      string // a transport, or nfs: the host's own clone onto an export
	Count    int    // number of concurrent objects
)

const (
	mediumPattern = `^[a-z0-9]{1,32}$`
	nicPattern    = `^[1-9][0-9]{0,2}g$`
	maxCount     = 16
)

// reservedMedia are names of ends that are not real.
var reservedMedia = map[string]bool{"pattern": true, "null": true}

func (Medium) textForm() form   { return form{pattern: mediumPattern, example: "ssd"} }
func (NICSpeed) textForm() form { return form{pattern: nicPattern, example: "10g"} }
func (Export) textForm() form   { return form{words: []string{"async", "sync"}} }
func (Way) textForm() form      { return form{words: append(Transport("").textForm().words, "nfs")} }
func (Count) textForm() form {
	return form{pattern: `^[1-9][0-9]?$`, example: "8", number: true, maximum: maxCount}
}

func (m *Medium) parseText(s string) error {
	if reservedMedia[s] {
		return fmt.Errorf("%q is what an end is called that is left out", s)
	}
	return setMatching(m, s, m.textForm())
}

func (n *NICSpeed) parseText(s string) error { return setMatching(n, s, n.textForm()) }
func (e *Export) parseText(s string) error   { return setWord(e, s, e.textForm()) }
func (w *Way) parseText(s string) error      { return setWord(w, s, w.textForm()) }

func (c *Count) parseText(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxCount {
		return fmt.Errorf("want a number from 1 to %d", maxCount)
	}
	*c = Count(n)
	return nil
}

// LoadMatrix reads such a file. It reports all errors at once.
func LoadMatrix(path string) (*Matrix, error) { return loadFile(path, ParseMatrix) }

// ParseMatrix reads its text as strictly as a plan's.
func ParseMatrix(text []byte) (*Matrix, Findings) {
	d, root := decodeRoot(text)
	if root == nil {
		return nil, d.found
	}
	plan := defaultFile()
	m := &Matrix{
		Source: plan.Source, Transports: []Way{"https"}, Exports: []Export{"async"}, Ends: true,
		Computed: Computed{Size: 8 << 30, Fill: 0.3, Seed: 1}, NFC: plan.Defaults.NFC, Landing: plan.Defaults.Landing,
	}
	d.decodeValue(root, reflect.ValueOf(m).Elem(), "")
	if len(d.found) == 0 {
		m.checkRules(d)
	}
	d.found.Sort()
	return m, d.found
}

// checkRules checks values that depend on others.
func (m *Matrix) checkRules(d *decoder) {
	m.checkDisks(d)
	m.checkFolders(d)
	m.checkLinks(d)
	exported := func(w Writable) bool { return len(w.NFS) > 0 }
	if slices.Contains(m.Transports, "nfs") && !slices.ContainsFunc(m.To, exported) {
		d.addRuleError("transports", "to: [{medium: hdd, folders: [dir:/srv/vm], nfs: [{folder: dir:/srv/nfs, datastore: nfs1, export: sync}]}]", "nfs needs a folder that the host has mounted")
	}
	if m.Computed.Size < 1<<20 || m.Computed.Size%512 != 0 {
		d.addRuleError("computed", "size: 8G", "the disk has to have 1 MiB or more, in whole sectors of 512 bytes")
	}
}

// addRuleError notes that the value at a path does not go with others.
func (d *decoder) addRuleError(path, remedy, format string, args ...any) {
	err := fault.New(fault.Invalid, path+": "+format, args...).WithHint("%s", remedy)
	d.found = append(d.found, Found("file", d.positions[path], "", err))
}

const uniqueMediumRemedy = "give each its own word: rows are named by it"

func (m *Matrix) checkDisks(d *decoder) {
	media, named := map[Medium]bool{}, 0
	for i, r := range m.Disks {
		path := fmt.Sprintf("disks[%d]", i)
		if media[r.Medium] {
			d.addRuleError(path, uniqueMediumRemedy, "%s stands there twice", r.Medium)
		}
		media[r.Medium] = true
		named = max(named, len(r.VMs))
	}
	if n := maxOf(m.Together); n > named {
		d.addRuleError("together", "name more VMs, or ask for fewer together", "together requires %d VMs, and no disks have more than %d", n, named)
	}
}

func (m *Matrix) checkFolders(d *decoder) {
	media, folders, named := map[Medium]bool{}, map[Destination]bool{}, 0
	for i, w := range m.To {
		path := fmt.Sprintf("to[%d]", i)
		if media[w.Medium] {
			d.addRuleError(path, uniqueMediumRemedy, "%s stands there twice", w.Medium)
		}
		media[w.Medium] = true
		named = max(named, len(w.Folders))
		for _, f := range w.Folders {
			if f.Kind() != Dir {
				d.addRuleError(path, "write dir:/FOLDER", "%s is no folder", f)
			}
			if folders[f] {
				d.addRuleError(path, "name each folder once", "%s stands there twice", f)
			}
			folders[f] = true
		}
	}
	if n := maxOf(m.Copies); n > named {
		d.addRuleError("copies", "name more folders, or ask for fewer copies", "copies requires %d folders, and no entry of to has more than %d", n, named)
	}
}

func (m *Matrix) checkLinks(d *decoder) {
	for i, l := range m.Links {
		for _, other := range m.Links[:i] {
			if l.NIC == other.NIC && l.MTU == other.MTU {
				d.addRuleError(fmt.Sprintf("links[%d]", i), "take one of them out: rows are named by NIC and MTU", "%s with MTU %d stands there twice", l.NIC, l.MTU)
			}
		}
	}
}

func maxOf(counts []Count) int {
	n := 0
	for _, c := range counts {
		n = max(n, int(c))
	}
	return n
}
