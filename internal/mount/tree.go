package mount

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/inventory"
)

// catalogAge is how old the list of datastores may be.
const catalogAge = 30 * time.Second

// catalog is the root folder: datacenters with their datastores, by the names of their folders.
type catalog struct {
	host Host
	now  func() time.Time

	mu    sync.Mutex
	tree  map[string]map[string]inventory.Datastore
	asked time.Time
}

// datacenterTree returns the tree. An old one is better than none, while the host is away.
func (c *catalog) datacenterTree(ctx context.Context) (map[string]map[string]inventory.Datastore, error) {
	c.mu.Lock()
	tree, asked := c.tree, c.asked
	c.mu.Unlock()
	if tree != nil && c.now().Sub(asked) < catalogAge {
		return tree, nil
	}
	stores, err := c.host.Datastores(ctx)
	if err != nil {
		if tree != nil {
			return tree, nil
		}
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tree, c.asked = folderTree(stores), c.now()
	return c.tree, nil
}

// folderTree gives each datacenter and datastore the name of its folder: its own, and where
// two datacenters in different folders share one, its inventory path.
func folderTree(stores []inventory.Datastore) map[string]map[string]inventory.Datastore {
	paths := map[string][]string{}
	for _, ds := range stores {
		base := path.Base(ds.Datacenter)
		if !slices.Contains(paths[base], ds.Datacenter) {
			paths[base] = append(paths[base], ds.Datacenter)
		}
	}
	tree := map[string]map[string]inventory.Datastore{}
	for _, ds := range stores {
		name := path.Base(ds.Datacenter)
		if len(paths[name]) > 1 {
			name = ds.Datacenter
		}
		name = folderName(name)
		if tree[name] == nil {
			tree[name] = map[string]inventory.Datastore{}
		}
		tree[name][folderName(ds.Name)] = ds
	}
	return tree
}

// folderName is a name as a folder's: a slash as VMware writes it in paths.
func folderName(name string) string {
	name = strings.ReplaceAll(name, "/", "%2f")
	if name == "" || name == "." || name == ".." {
		return "%" + name
	}
	return name
}
