package vsphere

import (
	"fmt"
	"net/url"
	"path"
	"strings"
)

// A volumePath is the path of a file on a datastore.
type volumePath struct{ datastore, path string }

// String returns "[datastore] path".
func (p volumePath) String() string { return datastorePath(p.datastore, "", p.path) }

// volumesRoot is the folder in which a host mounts its datastores.
const volumesRoot = "/vmfs/volumes"

// parseVolumePath parses "[datastore] folder/file", /vmfs/volumes/datastore/folder/file, or a /folder
// URL. ".." cannot leave the datastore.
func parseVolumePath(s string) (p volumePath, err error) {
	switch rest, ok := strings.CutPrefix(s, "["); {
	case ok: // "[datastore] path"
		var found bool
		if p.datastore, rest, found = strings.Cut(rest, "]"); !found {
			return p, fmt.Errorf("datastore path %q: want \"[datastore] path\"", s)
		}
		p.path = strings.TrimPrefix(rest, " ")
	case strings.HasPrefix(s, volumesRoot+"/"):
		p.datastore, p.path, _ = strings.Cut(s[len(volumesRoot)+1:], "/")
	case strings.HasPrefix(s, "http://"), strings.HasPrefix(s, "https://"):
		u, err := url.Parse(s)
		if err != nil || !strings.HasPrefix(u.Path, "/folder/") {
			return p, fmt.Errorf("datastore URL %q: want https://host/folder/path?dsName=datastore", s)
		}
		p.datastore, p.path = u.Query().Get("dsName"), strings.TrimPrefix(u.Path, "/folder/")
	default:
		return p, fmt.Errorf("path %q: it names no datastore", s)
	}
	p.path = strings.TrimPrefix(path.Clean("/"+p.path), "/")
	if p.datastore == "" {
		return p, fmt.Errorf("path %q: it names no datastore", s)
	}
	return p, nil
}

// A diskLink is one link of a disk's chain, as the source of a copy.
type diskLink struct {
	disk  *vdisk      // disk of the link
	links []chainLink // links from the base up to this one, at the time of the lookup
}

// name returns the name of the link's descriptor.
func (k diskLink) name() string { return k.links[len(k.links)-1].name }

// isActive reports whether a running VM writes to the link. The base below a snapshot is frozen: the
// VMkernel permits a second reader, such as vmkfstools or NFC.
func (k diskLink) isActive() bool {
	return k.disk.vm.running.Load() && k.name() == k.disk.currentLinks()[k.disk.lastLink()].name
}
