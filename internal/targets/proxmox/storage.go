package proxmox

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
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

// files reports whether the storage keeps volumes as files.
func (s storage) files() bool {
	switch s.Type {
	case "dir", "nfs", "cifs", "btrfs", "cephfs", "glusterfs":
		return true
	}
	return false
}

// removeUpload deletes an upload. That there is none is no error.
func (p *Place) removeUpload(ctx context.Context, volume, storage string) error {
	path := fmt.Sprintf("/nodes/%s/storage/%s/content/%s", p.node, storage, url.PathEscape(volume))
	return p.api.again(ctx, func() error {
		_, err := p.api.do(ctx, http.MethodDelete, path, nil)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	})
}
