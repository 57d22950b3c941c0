package export

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/units"
)

// Facts describe how to use an export. The JSON form is the output of --json.
type Facts struct {
	VM        string       `json:"vm"`                 // name of the VM
	Ref       string       `json:"ref"`                // reference of the VM
	Snapshot  string       `json:"snapshot,omitempty"` // reference of the snapshot that is served; empty for a VM that is off
	Transport string       `json:"transport"`          // transport of the disks
	URI       string       `json:"uri"`                // NBD URI of the first disk
	Socket    string       `json:"socket,omitempty"`   // path of the Unix socket; empty for TCP
	Exports   []ExportFact `json:"exports"`            // exports, in the order of the VM's disks
}

// ExportFact describes one export.
type ExportFact struct {
	Name        string `json:"name"`        // name of the export: disk-2000
	Description string `json:"description"` // file and size of the disk
	Disk        int32  `json:"disk"`        // device key of the disk
	Size        int64  `json:"size"`        // size in bytes
	URI         string `json:"uri"`         // NBD URI of the export
}

// Facts returns how to use the export.
func (e *Export) Facts() Facts {
	f := Facts{VM: e.vm.Name, Ref: string(e.vm.Ref), Snapshot: string(e.snapshot.Ref), Transport: e.reader.Name(), Socket: e.place.socket}
	if e.held != nil {
		f.Snapshot = string(e.held.Ref)
	}
	for _, d := range e.disks {
		f.Exports = append(f.Exports, ExportFact{d.name(), d.description(), d.key, d.size, e.place.uri(d.name())})
	}
	f.URI = f.Exports[0].URI
	return f
}

// Text returns the exports with the commands to try next.
func (e *Export) Text() string {
	f := e.Facts()
	state := "is powered off"
	switch {
	case e.held != nil:
		state = "runs"
	case e.snapshot.Ref != "":
		state = fmt.Sprintf("has the snapshot %q", fault.Printable(e.snapshot.Name))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "VM %s %s; its disks are read over %s. Press Ctrl-C to stop.\n\n", fault.Printable(f.VM), state, f.Transport)
	for _, x := range f.Exports {
		fmt.Fprintf(&b, "  %s  %s, %s\n  %s\n\n", x.Name, fault.Printable(e.disk(x.Disk).path.String()), units.Binary(x.Size), x.URI)
	}
	uri := fault.Quote(f.URI)
	fmt.Fprintf(&b, "Commands to try:\n\n  nbdinfo %s\n  nbdcopy -p %s disk.raw\n", uri, uri)
	if e.place.tls == nil { // qemu-img has no URI with TLS
		fmt.Fprintf(&b, "  qemu-img convert -p -O qcow2 %s disk.qcow2\n", uri)
	}
	return b.String()
}

// disk returns the open disk with that key.
func (e *Export) disk(key int32) *servedDisk {
	for _, d := range e.disks {
		if d.key == key {
			return d
		}
	}
	return nil
}

// listWarnings returns who can read the disks besides the user.
func (e *Export) listWarnings() []string {
	a := e.options.Address
	switch {
	case a.Listen == "":
		return nil
	case e.place.tls == nil:
		return []string{fmt.Sprintf("every user of this machine can read the disks at %s; a Unix socket, the default, is for you only", e.place.listener.Addr())}
	case a.ClientCA == "":
		return []string{fmt.Sprintf("any machine that reaches %s can read the disks; add --tls-client-ca FILE to require certificates of clients", e.place.listener.Addr())}
	}
	return nil
}
