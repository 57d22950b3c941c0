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

// catalogAge is the largest age of the list of datastores.
const catalogAge = 30 * time.Second

// A catalog is the root folder: datacenters and their datastores, by the names of their folders.
type catalog struct {
	host Host             // source of the list
	now  func() time.Time // clock

	mu    sync.Mutex                                // guards the fields below; not held across requests
	tree  map[string]map[string]inventory.Datastore // datastores by datacenter and name; nil if never listed
	asked time.Time                                 // time of the list
}

// datacenterTree returns the datastores by datacenter and name. If the host does not answer, it returns
// an older list.
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

// folderTree returns the datastores by the names of their folders. A datacenter has its own name, or
// its inventory path if another datacenter has the same name.
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

// folderName returns name as the name of a folder. It replaces a slash by %2f, as VMware does in paths.
func folderName(name string) string {
	name = strings.ReplaceAll(name, "/", "%2f")
	if name == "" || name == "." || name == ".." {
		return "%" + name
	}
	return name
}
