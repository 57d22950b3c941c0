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

// A datacenter is a datacenter with its objects.
type datacenter struct {
	spec       Datacenter                     // configuration
	path       string                         // inventory path without the leading slash: Lab/DC1
	ref        types.ManagedObjectReference   // simulator's object
	hosts      []types.ManagedObjectReference // hosts in the order of the configuration
	datastores []*datastore                   // datastores in the order of the configuration
}

// A datastore is a folder of small real files (descriptors, .vmx), and the data files of disks, which
// exist only in memory. The browser API hides data files on a real host as well.
type datastore struct {
	spec Datastore                    // configuration
	dc   *datacenter                  // datacenter that contains it
	dir  string                       // folder of the real files
	root *os.Root                     // the same folder, for access by untrusted paths
	rate *bucket                      // rate limit and counters of reads
	ref  types.ManagedObjectReference // simulator's object

	mu   sync.RWMutex         // guards data
	data map[string]*dataFile // data files by path in the datastore
}

// A dataFile is the data of one link of a disk's chain.
type dataFile struct {
	disk    *vdisk  // disk of the link
	content content // bytes of the file
	link    string  // name of the link's descriptor
}

// A machine is one VM.
type machine struct {
	spec  VM                           // configuration
	name  string                       // name in the inventory, with escapes
	home  *datastore                   // datastore of its folder
	ref   types.ManagedObjectReference // simulator's object
	disks []*vdisk                     // disks in the order of the configuration

	running    atomic.Bool  // whether the VM is powered on; follows runtime.powerState
	shutdownAt time.Time    // time of a pending shutdown, zero if none; guarded by guestPower.mu
	writer     *guestWriter // writes of its guest

	writing    sync.Mutex                            // held for each write of the guest and while chains change; guards the fields below
	snaps      []*snapshotState                      // snapshots, oldest first
	leaveDelta bool                                  // whether the next removal of a snapshot leaves its delta
	removed    map[types.ManagedObjectReference]bool // snapshots whose removal has begun
}

// A vdisk is one disk of a machine.
type vdisk struct {
	spec      Disk                        // configuration
	id        string                      // seed of everything derived, such as UUID and CID
	vm        *machine                    // machine of the disk
	ds        *datastore                  // datastore of its files
	key       int32                       // device key in the API
	links     atomic.Pointer[[]chainLink] // links from the base up
	base      content                     // original content of the disk
	content   content                     // content at the time of each read
	size      atomic.Int64                // capacity in bytes
	changes   *changeLog                  // change tracking
	noise     []byte                      // source of computed bytes
	allocated int64                       // allocated bytes at the granularity of the map, at the start
	hide      atomic.Pointer[[]Span]      // ranges that the allocation map omits
	served    atomic.Int64                // number of /folder replies in progress
	opened    atomic.Int64                // number of NFC sessions that have it open
}

// writeLink writes the descriptor of a link and registers its data file.
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

// registerData registers the data file of a link. vSAN objects and RDM pointers have none.
func (d *vdisk) registerData(link chainLink) {
	if d.ds.spec.Type == "vsan" || (d.spec.RDM != "" && link.parent == "") {
		return
	}
	f := &dataFile{disk: d, link: link.name}
	switch {
	case link.parent == "": // the base: raw bytes
		f.content = d.viewThrough([]chainLink{link})
	case strings.HasSuffix(link.data, "-sesparse.vmdk"):
		f.content = &deltaFile{d: d, layer: link.layer, make: makeSESparse}
	default:
		f.content = &deltaFile{d: d, layer: link.layer, make: makeCOWD}
	}
	d.ds.setFile(filepath.Join(d.vm.spec.Folder, link.data), f)
}

// setFile registers a data file at a path; nil removes it.
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

// filePaths returns the paths of all data files, in no order.
func (ds *datastore) filePaths() []string {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	return slices.Collect(maps.Keys(ds.data))
}

// writeFile writes a real file and creates its folder.
func (ds *datastore) writeFile(name, text string) error {
	if err := os.MkdirAll(filepath.Join(ds.dir, filepath.Dir(name)), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(ds.dir, name), []byte(text), 0o600)
}

// findDatastore returns the datastore with this name, or nil.
func (dc *datacenter) findDatastore(name string) *datastore {
	for _, ds := range dc.datastores {
		if ds.spec.Name == name {
			return ds
		}
	}
	return nil
}

// findDisk returns the disk with this device key, or nil.
func (m *machine) findDisk(key int32) *vdisk {
	for _, d := range m.disks {
		if d.key == key {
			return d
		}
	}
	return nil
}
