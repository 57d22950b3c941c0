package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// datacenter is one datacenter with what it holds.
type datacenter struct {
	spec       Datacenter
	path       string // inventory path without the leading slash: Lab/DC1
	ref        types.ManagedObjectReference
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
	data map[string]*dataFile // by path inside the datastore; complete before the lab serves
}

// dataFile is the data of one link of a disk's chain.
type dataFile struct {
	disk    *vdisk
	content content
	active  bool // the link a running VM writes to
}

// machine is one VM.
type machine struct {
	spec  VM
	name  string // as the inventory shows it, with escapes
	home  *datastore
	ref   types.ManagedObjectReference
	disks []*vdisk

	running    atomic.Bool // follows runtime.powerState
	frozen     atomic.Bool // has a snapshot: its base disks are no longer written
	shutdownAt time.Time   // guarded by guests.mu; zero when no shutdown is pending
}

// vdisk is one disk of a machine.
type vdisk struct {
	spec      Disk
	id        string // seed of everything derived: uuid, CID
	vm        *machine
	ds        *datastore
	key       int32 // device key
	links     []chainLink
	content   content
	allocated int64                  // bytes at the map's granularity
	hide      atomic.Pointer[[]Span] // ranges the map omits
	served    atomic.Int64           // /folder replies under way
	opened    atomic.Int64           // NFC sessions that have it open
}

// newMachine opens the contents of v's disks and writes its descriptors.
func (l *Lab) newMachine(v VM, dc *datacenter) (*machine, error) {
	m := &machine{spec: v, name: escapeName(v.Name), home: dc.datastore(v.Datastore)}
	if m.home == nil {
		return nil, fmt.Errorf("no datastore %q in %s", v.Datastore, dc.path)
	}
	for i := range v.Disks {
		d, err := l.newDisk(m, dc, v.Disks[i])
		if err != nil {
			return nil, fmt.Errorf("VM %q disk %d: %w", v.Name, i, err)
		}
		m.disks = append(m.disks, d)
	}
	return m, nil
}

func (l *Lab) newDisk(m *machine, dc *datacenter, spec Disk) (*vdisk, error) {
	d := &vdisk{spec: spec, vm: m, ds: dc.datastore(spec.Datastore), id: dc.path + "/" + m.spec.Name + "/" + spec.Name}
	d.hide.Store(&spec.Hide)
	if err := l.openContent(d); err != nil {
		return nil, err
	}
	d.links = chain(spec, len(m.spec.Snapshots), d.ds.spec.Type == "VMFS")
	for i, link := range d.links {
		if err := d.writeLink(link, i == len(d.links)-1); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (l *Lab) openContent(d *vdisk) (err error) {
	if d.spec.File != "" {
		d.content, err = openRaw(d.spec.File, int64(d.spec.Capacity))
	} else {
		d.content = &generated{noise: l.noise(), size: int64(d.spec.Capacity), seed: d.spec.Seed, fill: d.spec.Fill}
	}
	if err != nil {
		return fmt.Errorf("open content: %w", err)
	}
	l.contents = append(l.contents, d.content)
	d.allocated = d.content.Size()
	if !d.spec.Thick {
		d.allocated, err = allocated(d.content, int64(l.cfg.CBT.Granularity))
	}
	return err
}

// writeLink writes the descriptor of one link and registers its data file. RDM pointers and
// vSAN objects have none.
func (d *vdisk) writeLink(link chainLink, active bool) error {
	folder := d.vm.spec.Folder
	if err := d.ds.write(filepath.Join(folder, link.name), d.descriptor(link)); err != nil {
		return err
	}
	if d.vm.spec.ChangeTracking {
		if err := d.ds.write(filepath.Join(folder, ctkName(link.name)), ""); err != nil {
			return err
		}
	}
	if d.ds.spec.Type == "vsan" || (d.spec.RDM != "" && link.parent == "") {
		return nil
	}
	f := &dataFile{disk: d, content: d.content, active: active}
	if link.parent != "" {
		f.content = &generated{size: deltaSize} // an empty delta; its format is not emulated
	}
	d.ds.data[filepath.Join(folder, link.data)] = f
	return nil
}

// deltaSize is the size of a snapshot's data file just after it was made.
const deltaSize = 1 << 20

func (ds *datastore) write(name, text string) error {
	if err := os.MkdirAll(filepath.Join(ds.dir, filepath.Dir(name)), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(ds.dir, name), []byte(text), 0o600)
}

func (dc *datacenter) datastore(name string) *datastore {
	for _, ds := range dc.datastores {
		if ds.spec.Name == name {
			return ds
		}
	}
	return nil
}

func (m *machine) disk(key int32) *vdisk {
	for _, d := range m.disks {
		if d.key == key {
			return d
		}
	}
	return nil
}
