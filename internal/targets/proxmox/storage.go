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

// A storageClient lists the storages of a node by its API, and chooses among them. It has no state but the connection and
// is safe for concurrent use.
type storageClient struct {
	api  *client
	node string
}

// list returns the storages that the token may use.
func (c storageClient) list(ctx context.Context) ([]storage, error) {
	var list []storage
	err := c.api.get(ctx, "/nodes/"+c.node+"/storage", nil, &list)
	return list, err
}

// forDisks returns the storage of that name, for disks.
func (c storageClient) forDisks(name string, list []storage) (storage, error) {
	for _, s := range list {
		if s.ID != name {
			continue
		}
		if !s.keeps("images") {
			return s, fault.New(fault.Invalid, "storage %s of %s takes no disks: its content is %s", s.ID, c.node, s.Content).
				WithHint("name another with storage= or in the map of storages, or: pvesm set %s --content %s,images", s.ID, s.Content)
		}
		return s, c.checkActive(s)
	}
	return storage{}, c.notFound(name, list)
}

// forUploads returns the storage for uploads: the wanted one, or the one with the most room if wanted is empty.
func (c storageClient) forUploads(wanted string, list []storage) (storage, error) {
	var best storage
	for _, s := range list {
		named := s.ID == wanted
		if named && !s.keeps("import") {
			return s, noImport(s.ID, s.Content, c.node)
		}
		if named {
			return s, c.checkActive(s)
		}
		if wanted == "" && s.keeps("import") && s.Active == 1 && s.Avail >= best.Avail {
			best = s
		}
	}
	switch {
	case wanted != "":
		return best, c.notFound(wanted, list)
	case best.ID == "":
		return best, noImport("local", "iso,vztmpl,backup", c.node)
	}
	return best, nil
}

func noImport(id, content, node string) error {
	return fault.New(fault.Invalid, "storage %s of %s takes no uploads of disks: content import is not among its %s", id, node, content).
		WithHint("pvesm set %s --content %s,import; it has to be a storage of files (dir, NFS, CIFS, CephFS, btrfs)", id, content)
}

func (c storageClient) checkActive(s storage) error {
	if s.Active == 1 {
		return nil
	}
	return fault.New(fault.Transient, "storage %s is not active on %s", s.ID, c.node).WithHint("on the node: pvesm status --storage %s", s.ID)
}

func (c storageClient) notFound(id string, list []storage) error {
	var names []string
	for _, s := range list {
		names = append(names, s.ID)
	}
	return fault.New(fault.NotFound, "node %s has no storage %s that the token may use; there are: %s", c.node, id, strings.Join(names, ", ")).
		WithHint("name one of them with storage=, import= or a map of storages, or: pveum acl modify /storage/%s --tokens %s --roles PVEDatastoreAdmin",
			id, fault.Quote(c.api.token.name()))
}

// files reports whether the storage keeps volumes as files.
func (s storage) files() bool {
	switch s.Type {
	case "dir", "nfs", "cifs", "btrfs", "cephfs", "glusterfs":
		return true
	}
	return false
}

// removeContent deletes a volume or an upload from a storage. It returns nil if the storage has no such volume.
func (c storageClient) removeContent(ctx context.Context, volume, storage string) error {
	path := fmt.Sprintf("/nodes/%s/storage/%s/content/%s", c.node, storage, url.PathEscape(volume))
	return c.api.again(ctx, func() error {
		_, err := c.api.do(ctx, http.MethodDelete, path, nil)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	})
}
