package mount

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// longestManifest is the largest size of a manifest in bytes: about 50 000 VMs.
const longestManifest = 32 << 20

// ReadManifest parses the list of datacenters and datastores for Proxmox's importer (written by listvms.py of
// pve-esxi-import-tools):
//
//	{"DC": {"datastores": {"NAME": "/vmfs/volumes/UUID/"}, "vms": {…}}}
//
// The VMs are ignored: their files are found by name.
func ReadManifest(r io.Reader) ([]inventory.Datastore, error) {
	text, err := io.ReadAll(io.LimitReader(r, longestManifest+1))
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if len(text) > longestManifest {
		return nil, fault.New(fault.Invalid, "the manifest is larger than %d bytes", longestManifest)
	}
	var datacenters map[string]struct {
		Datastores map[string]string `json:"datastores"`
	}
	if err := json.Unmarshal(text, &datacenters); err != nil {
		return nil, fault.New(fault.Invalid, "the manifest is invalid: %w", err)
	}
	var stores []inventory.Datastore
	for dc, d := range datacenters {
		for name := range d.Datastores {
			stores = append(stores, inventory.Datastore{Name: name, Datacenter: dc})
		}
	}
	slices.SortFunc(stores, func(a, b inventory.Datastore) int {
		return cmp.Or(cmp.Compare(a.Datacenter, b.Datacenter), cmp.Compare(a.Name, b.Name))
	})
	return stores, nil
}

// Listed is a Host with a given list of datastores.
type Listed struct {
	Host
	Stores []inventory.Datastore // datastores to show
}

// Datastores returns the given list.
func (l Listed) Datastores(context.Context) ([]inventory.Datastore, error) { return l.Stores, nil }
