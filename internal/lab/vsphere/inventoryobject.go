package vsphere

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// datacenter is one datacenter with its objects.
type datacenter struct {
	spec       Datacenter
	path       string // inventory path without the leading slash: Lab/DC1
	ref        types.ManagedObjectReference
	hosts      []types.ManagedObjectReference // hosts in the order of the config
	datastores []*datastore
}

// datastore is a folder of small real files (descriptors, .vmx) and the data files of
// disks, which exist only in memory: the browser API hides them on a real host too.
type datastore struct {
	spec Datastore
	dc   *datacenter
	dir  string
	root *os.Root
	rate *bucket
	ref  types.ManagedObjectReference

	mu   sync.RWMutex
	data map[string]*dataFile // files by path inside the datastore
}

// dataFile is the data of one link of a disk's chain.
type dataFile struct {
	disk    *vdisk
	content content
	link    string // name of its descriptor
}

// machine is one VM.
type machine struct {
	spec  VM
	name  string // name in the inventory, with escapes
	home  *datastore
	ref   types.ManagedObjectReference
	disks []*vdisk

	running    atomic.Bool // follows runtime.powerState
	shutdownAt time.Time   // guarded by guests.mu; zero when no shutdown is pending
	writer     *guestWriter

	writing    sync.Mutex                            // held for each write of the guest, and while chains change
	snaps      []*snap                               // oldest first
	leaveDelta bool                                  // the next snapshot that is removed leaves its delta behind
	removed    map[types.ManagedObjectReference]bool // snapshots whose removal was begun
}

// vdisk is one disk of a machine.
type vdisk struct {
	spec      Disk
	id        string // seed of everything derived: uuid, CID
	vm        *machine
	ds        *datastore
	key       int32                       // device key
	links     atomic.Pointer[[]chainLink] // links from the base up
	base      content                     // original content of the disk
	content   content                     // current content
	size      atomic.Int64
	changes   *changeLog
	noise     []byte
	allocated int64                  // bytes at the map's granularity, at first
	hide      atomic.Pointer[[]Span] // ranges the map omits
	served    atomic.Int64           // /folder replies under way
	opened    atomic.Int64           // NFC sessions that have it open
}

// writeLink writes the descriptor of one link and registers its data file. RDM pointers and
// vSAN objects have none.
func (d *vdisk) writeLink(link chainLink) error {
	folder := d.vm.spec.Folder
	if err := d.ds.writeFile(filepath.Join(folder, link.name), d.descriptorText(link)); err != nil {
		return err
	}
	if d.isTracked() {
		if err := d.ds.writeFile(filepath.Join(folder, ctkName(link.name)), ""); err != nil {
			return err
		}
	}
	d.registerData(link)
	return nil
}

// registerData makes the data file of a link known.
func (d *vdisk) registerData(link chainLink) {
	if d.ds.spec.Type == "vsan" || (d.spec.RDM != "" && link.parent == "") {
		return
	}
	f := &dataFile{disk: d, link: link.name}
	switch {
	case link.parent == "":
		f.content = d.viewThrough([]chainLink{link})
	case strings.HasSuffix(link.data, "-sesparse.vmdk"):
		f.content = &deltaFile{d: d, layer: link.layer, make: makeSESparse}
	default:
		f.content = &deltaFile{d: d, layer: link.layer, make: makeCOWD}
	}
	d.ds.setFile(filepath.Join(d.vm.spec.Folder, link.data), f)
}

// setFile makes a data file known under a path; nil forgets it.
func (ds *datastore) setFile(path string, f *dataFile) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if f == nil {
		delete(ds.data, path)
		return
	}
	ds.data[path] = f
}

// findFile returns the data file at a path, or nil.
func (ds *datastore) findFile(path string) *dataFile {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	return ds.data[path]
}

// filePaths lists the paths of the data files.
func (ds *datastore) filePaths() []string {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	return slices.Collect(maps.Keys(ds.data))
}

func (ds *datastore) writeFile(name, text string) error {
	if err := os.MkdirAll(filepath.Join(ds.dir, filepath.Dir(name)), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(ds.dir, name), []byte(text), 0o600)
}

func (dc *datacenter) findDatastore(name string) *datastore {
	for _, ds := range dc.datastores {
		if ds.spec.Name == name {
			return ds
		}
	}
	return nil
}

func (m *machine) findDisk(key int32) *vdisk {
	for _, d := range m.disks {
		if d.key == key {
			return d
		}
	}
	return nil
}
