package proxmox

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// A storage is one that the node reaches.
type storage struct {
	ID      string `json:"storage"`
	Type    string `json:"type"`
	Content string `json:"content"` // images,iso,import …
	Active  int    `json:"active"`
	Avail   int64  `json:"avail"` // bytes
}

func (s storage) keeps(content string) bool {
	return slices.Contains(strings.Split(s.Content, ","), content)
}

// thick reports whether a volume takes all of its size at once.
func (s storage) thick() bool { return s.Type == "lvm" || s.Type == "iscsi" || s.Type == "iscsidirect" }

func (p *Place) storages(ctx context.Context) ([]storage, error) {
	var list []storage
	err := p.api.get(ctx, "/nodes/"+p.node+"/storage", nil, &list)
	return list, err
}

// disksOn is the storage of that name, for disks.
func (p *Place) disksOn(name string, list []storage) (storage, error) {
	for _, s := range list {
		if s.ID != name {
			continue
		}
		if !s.keeps("images") {
			return s, fault.New(fault.Invalid, "storage %s of %s takes no disks: its content is %s", s.ID, p.node, s.Content).
				WithHint("name another with storage= or in the map of storages, or: pvesm set %s --content %s,images", s.ID, s.Content)
		}
		return s, p.active(s)
	}
	return storage{}, p.noStorage(name, list)
}

// uploadsOn is the storage that uploads go to: the one that was named, else the one with the most
// room.
func (p *Place) uploadsOn(list []storage) (storage, error) {
	var best storage
	for _, s := range list {
		named := s.ID == p.opts.Import
		if named && !s.keeps("import") {
			return s, noImport(s.ID, s.Content, p.node)
		}
		if named {
			return s, p.active(s)
		}
		if p.opts.Import == "" && s.keeps("import") && s.Active == 1 && s.Avail >= best.Avail {
			best = s
		}
	}
	switch {
	case p.opts.Import != "":
		return best, p.noStorage(p.opts.Import, list)
	case best.ID == "":
		return best, noImport("local", "iso,vztmpl,backup", p.node)
	}
	return best, nil
}

func noImport(id, content, node string) error {
	return fault.New(fault.Invalid, "storage %s of %s takes no uploads of disks: content import is not among its %s", id, node, content).
		WithHint("pvesm set %s --content %s,import; it has to be a storage of files (dir, NFS, CIFS, CephFS, btrfs)", id, content)
}

func (p *Place) active(s storage) error {
	if s.Active == 1 {
		return nil
	}
	return fault.New(fault.Transient, "storage %s is not active on %s", s.ID, p.node).WithHint("on the node: pvesm status --storage %s", s.ID)
}

func (p *Place) noStorage(id string, list []storage) error {
	var names []string
	for _, s := range list {
		names = append(names, s.ID)
	}
	return fault.New(fault.NotFound, "node %s has no storage %s that the token may use; there are: %s", p.node, id, strings.Join(names, ", ")).
		WithHint("name one of them with storage=, import= or a map of storages, or: pveum acl modify /storage/%s --tokens %s --roles PVEDatastoreAdmin",
			id, fault.Quote(p.api.token.name()))
}

// leastMajor and leastMinor are the first release of Proxmox VE that takes uploads of disks
// (libpve-storage-perl 8.3.6, April 2025).
const leastMajor, leastMinor = 8, 4

// version asks what is installed. It is the first that is asked: who mistyped a name is not to wait.
func (p *Place) version(ctx context.Context) (string, error) {
	var v struct {
		Version string `json:"version"`
	}
	err := p.api.call(ctx, http.MethodGet, "/version", nil, &v)
	return v.Version, err
}

// checkVersion refuses a release that takes no uploads, where there are to be some.
func (p *Place) checkVersion(version string) error {
	if p.direct() {
		return nil
	}
	parts := strings.SplitN(version+"..", ".", 3)
	major, errMajor := strconv.Atoi(parts[0])
	minor, errMinor := strconv.Atoi(parts[1])
	if errMajor != nil || errMinor != nil {
		return fault.New(fault.Corrupt, "Proxmox %s says that its version is %q", p.api.host, fault.Line(version))
	}
	if major > leastMajor || major == leastMajor && minor >= leastMinor {
		return nil
	}
	return fault.New(fault.Unsupported, "Proxmox VE %s takes no uploads of disks: %d.%d is the first that does", fault.Line(version), leastMajor, leastMinor).
		WithHint("update the node (apt update && apt full-upgrade), or migrate into a folder with --to dir: and import with qm importdisk")
}

func (p *Place) checkOnline(ctx context.Context) error {
	var nodes []struct {
		Node   string `json:"node"`
		Status string `json:"status"`
	}
	if err := p.api.get(ctx, "/nodes", nil, &nodes); err != nil {
		return err
	}
	var names []string
	for _, n := range nodes {
		if n.Node != p.node {
			names = append(names, fault.Line(n.Node))
			continue
		}
		if n.Status == "online" {
			return nil
		}
		return fault.New(fault.Unreachable, "node %s is %s", p.node, fault.Line(n.Status)).WithHint("on another node of the cluster: pvecm status")
	}
	return fault.New(fault.NotFound, "%s has no node %s; there are: %s", p.api.host, p.node, strings.Join(names, ", ")).
		WithHint("name one of them: proxmox:https://%s/NODE", p.api.host)
}

// A resource is a guest as the cluster lists it.
type resource struct {
	Type string `json:"type"` // qemu, or lxc
	VMID int    `json:"vmid"`
	Node string `json:"node"`
	Name string `json:"name"`
	Tags string `json:"tags"`
}

func (r resource) tagged(tag string) bool {
	return slices.Contains(strings.FieldsFunc(r.Tags, func(c rune) bool { return c == ';' || c == ',' || c == ' ' }), tag)
}

// guests lists those of the cluster that the token may see.
func (p *Place) guests(ctx context.Context) ([]resource, error) {
	var list []resource
	err := p.api.get(ctx, "/cluster/resources", url.Values{"type": {"vm"}}, &list)
	for _, r := range list {
		if !isName(r.Node) {
			return nil, fault.New(fault.Corrupt, "guest %d is on a node %q", r.VMID, fault.Line(r.Node))
		}
	}
	return list, err
}

// nextID is a VMID that is free now, and reserved for nobody.
func (p *Place) nextID(ctx context.Context) (int, error) {
	var id loose
	if err := p.api.get(ctx, "/cluster/nextid", nil, &id); err != nil {
		return 0, err
	}
	vmid, err := strconv.Atoi(strings.Trim(string(id), `"`))
	if err != nil || vmid < 100 || vmid > 999999999 {
		return 0, fault.New(fault.Corrupt, "Proxmox %s has %q for the next VMID", p.api.host, fault.Line(string(id)))
	}
	return vmid, nil
}

// loose is a value that is text in one release and a number in another.
type loose string

// UnmarshalJSON keeps the value as it is.
func (l *loose) UnmarshalJSON(b []byte) error {
	*l = loose(b)
	return nil
}

func qemu(node string, vmid int) string { return fmt.Sprintf("/nodes/%s/qemu/%d", node, vmid) }
