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

// storage is a storage of the node.
type storage struct {
	ID      string `json:"storage"` // name in the cluster
	Type    string `json:"type"`    // type such as "lvmthin" or "dir"
	Content string `json:"content"` // allowed content, separated by commas: "images,iso,import"
	Active  int    `json:"active"`  // 1 if the node can use it
	Avail   int64  `json:"avail"`   // free bytes
}

// hasContent reports whether the storage allows a kind of content.
func (s storage) hasContent(content string) bool {
	return slices.Contains(strings.Split(s.Content, ","), content)
}

// isThick reports whether a volume is fully allocated when it is created.
func (s storage) isThick() bool {
	return s.Type == "lvm" || s.Type == "iscsi" || s.Type == "iscsidirect"
}

// storageClient lists the storages of a node, and chooses among them. It is safe for concurrent use.
type storageClient struct {
	api  *client // client of the node
	node string  // node whose storages are listed
}

// list returns the storages of the node that the token may use.
func (c storageClient) list(ctx context.Context) ([]storage, error) {
	var list []storage
	err := c.api.get(ctx, "/nodes/"+c.node+"/storage", nil, &list)
	return list, err
}

// forDisks returns the storage with a name. If it does not exist, the error is fault.NotFound. If it
// does not allow disks,
// it is fault.Invalid, and if it is inactive, fault.Transient.
func (c storageClient) forDisks(name string, list []storage) (storage, error) {
	for _, s := range list {
		if s.ID != name {
			continue
		}
		if !s.hasContent("images") {
			return s, fault.New(fault.Invalid, "storage %s of %s does not allow disks: its content is %s", s.ID, c.node, s.Content).
				WithHint("set another with storage= or in the map of storages, or allow disks: pvesm set %s --content %s,images", s.ID, s.Content)
		}
		return s, c.checkActive(s)
	}
	return storage{}, c.notFound(name, list)
}

// forUploads returns the storage for uploads: the wanted one, or the one with the most space if wanted
// is empty. If no
// storage allows uploads, the error is fault.Invalid, with the command that allows them.
func (c storageClient) forUploads(wanted string, list []storage) (storage, error) {
	var best storage
	for _, s := range list {
		named := s.ID == wanted
		if named && !s.hasContent("import") {
			return s, noImport(s.ID, s.Content, c.node)
		}
		if named {
			return s, c.checkActive(s)
		}
		if wanted == "" && s.hasContent("import") && s.Active == 1 && s.Avail >= best.Avail {
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

// noImport returns the error for a storage without the content import.
func noImport(id, content, node string) error {
	return fault.New(fault.Invalid, "storage %s of %s does not allow uploads of disks: import is missing from its content %s", id, node, content).
		WithHint("allow uploads: pvesm set %s --content %s,import; it must be a storage with files (dir, NFS, CIFS, CephFS, btrfs)", id, content)
}

// checkActive returns fault.Transient if the node cannot use the storage now.
func (c storageClient) checkActive(s storage) error {
	if s.Active == 1 {
		return nil
	}
	return fault.New(fault.Transient, "storage %s is not active on %s", s.ID, c.node).WithHint("on the node: pvesm status --storage %s", s.ID)
}

// notFound returns the error for an unknown storage, with the names in the list.
func (c storageClient) notFound(id string, list []storage) error {
	var names []string
	for _, s := range list {
		names = append(names, s.ID)
	}
	return fault.New(fault.NotFound, "node %s has no storage %s that the token may use; it may use: %s", c.node, id, strings.Join(names, ", ")).
		WithHint("set one of them with storage=, import= or a map of storages, or grant access: pveum acl modify /storage/%s --tokens %s --roles PVEDatastoreAdmin",
			id, fault.Quote(c.api.token.name()))
}

// storesFiles reports whether volumes are files.
func (s storage) storesFiles() bool {
	switch s.Type {
	case "dir", "nfs", "cifs", "btrfs", "cephfs", "glusterfs":
		return true
	}
	return false
}

// removeContent deletes a volume or an upload. It returns nil if it does not exist.
func (c storageClient) removeContent(ctx context.Context, volume, storage string) error {
	path := fmt.Sprintf("/nodes/%s/storage/%s/content/%s", c.node, storage, url.PathEscape(volume))
	return c.api.retryTemporary(ctx, func() error {
		_, err := c.api.runTask(ctx, http.MethodDelete, path, nil)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	})
}
