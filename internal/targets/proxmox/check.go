package proxmox

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
)

// checker determines whether VMs can be delivered. It changes nothing and is safe for concurrent use.
type checker struct {
	clients
	opts Options // options of the platform
}

// checkVM returns the reason why vm cannot be delivered, or nil. It stops at the first problem, in this
// order: hardware,
// login, version, node, name, storages, privileges, networks, free space.
func (c checker) checkVM(ctx context.Context, vm *inventory.VM) error {
	m, err := Config(targets.Definition{VM: vm}, c.opts)
	if err != nil {
		return err
	}
	version, err := c.api.readVersion(ctx)
	if err != nil {
		return err
	}
	if err := c.checkVersion(version); err != nil {
		return err
	}
	if err := c.checkOnline(ctx); err != nil {
		return err
	}
	list, err := c.guests.listGuests(ctx)
	if err != nil {
		return err
	}
	if err := checkName(vm, m.Name, list); err != nil {
		return err
	}
	return c.checkRequirements(ctx, vm)
}

// checkName returns fault.Conflict if a foreign guest has the name. Proxmox allows duplicate names, but
// users could not
// distinguish the guests in its list.
func checkName(vm *inventory.VM, name string, list []resource) error {
	for _, r := range list {
		if r.Name == name && !r.hasTag(ownTag(vm)) {
			return fault.New(fault.Conflict, "guest %d on %s already has the name %s", r.VMID, r.Node, name).
				WithHint("rename one of the two, for example: qm set %d --name %s-old", r.VMID, name)
		}
	}
	return nil
}

// requirements are the storages and networks that a guest will use.
type requirements struct {
	into     []share           // storages for disks, with the disks of each
	uploads  storage           // storage for uploads; unused over SSH
	kinds    map[string]string // kind of each network on the node, by name
	networks []network         // network of each card
}

// checkRequirements checks the storages and networks for vm, and the token's privileges on both. Over
// SSH, volumes of an
// earlier delivery count as free space.
func (c checker) checkRequirements(ctx context.Context, vm *inventory.VM) error {
	t, err := c.findRequirements(ctx, vm)
	if err != nil {
		return err
	}
	if err := c.checkRights(ctx, vm, t); err != nil {
		return err
	}
	if err := c.checkNetworks(vm, t); err != nil {
		return err
	}
	if !c.opts.isDirect() {
		return checkRoom(vm, t.into, t.uploads)
	}
	for i := range t.into {
		had, err := c.volumes.ownSize(ctx, vm, t.into[i].ID)
		if err != nil {
			return err
		}
		t.into[i].Avail += had
	}
	return checkRoom(vm, t.into, storage{Avail: math.MaxInt64}) // nothing is uploaded
}

// findRequirements determines the storages and networks for vm. It checks the login if volumes are
// written over SSH.
func (c checker) findRequirements(ctx context.Context, vm *inventory.VM) (t requirements, err error) {
	list, err := c.storages.list(ctx)
	if err != nil {
		return t, err
	}
	if t.into, err = c.storageShares(vm, list); err != nil {
		return t, err
	}
	if c.opts.isDirect() {
		err = c.shell.checkNode(ctx)
	} else {
		t.uploads, err = c.storages.forUploads(c.opts.Import, list)
	}
	if err != nil {
		return t, err
	}
	if t.kinds, err = c.api.listBridges(ctx, c.node); err != nil {
		return t, err
	}
	t.networks, err = c.opts.cardNetworks(vm)
	return t, err
}

// share is a storage with the VM's disks on it.
type share struct {
	storage
	disks []inventory.Disk // disks for this storage; empty for one with EFI variables only
}

// storageShares groups the disks by storage, in the order in which the storages first occur. If the
// guest has EFI
// variables or no disks, the VM's home storage is included.
func (c checker) storageShares(vm *inventory.VM, list []storage) ([]share, error) {
	var into []share
	add := func(datastore string, disks ...inventory.Disk) error {
		name, err := c.opts.storageOf(datastore)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(into, func(s share) bool { return s.ID == name })
		if at < 0 {
			s, err := c.storages.forDisks(name, list)
			if err != nil {
				return err
			}
			at, into = len(into), append(into, share{storage: s})
		}
		into[at].disks = append(into[at].disks, disks...)
		return nil
	}
	for _, d := range vm.Disks {
		if err := add(namemap.Datastore(d), d); err != nil {
			return nil, err
		}
	}
	if vm.Firmware == inventory.EFI || len(vm.Disks) == 0 {
		return into, add(namemap.Home(vm))
	}
	return into, nil
}

// minBytes returns the minimum space for a disk. It is 0 for a thick disk, because the amount of zeros
// is unknown.
func minBytes(d inventory.Disk) int64 {
	if d.Thin && d.Used > 0 {
		return min(d.Used, d.Capacity)
	}
	return 0
}

// checkRoom returns fault.Full if a storage has less space than its disks need. The largest disk must
// also fit on the
// storage for uploads, which can be one of the others.
func checkRoom(vm *inventory.VM, into []share, uploads storage) error {
	type need struct {
		of    storage
		bytes int64
	}
	var largest int64
	for _, d := range vm.Disks {
		largest = max(largest, minBytes(d))
	}
	needs := []need{{uploads, largest}}
	for _, s := range into {
		n := need{of: s.storage}
		for _, d := range s.disks {
			if s.isThick() {
				n.bytes += d.Capacity
			} else {
				n.bytes += minBytes(d)
			}
		}
		if s.ID == uploads.ID {
			n.bytes += largest
		}
		needs = append(needs, n)
	}
	for _, need := range needs {
		if need.bytes > need.of.Avail {
			return fault.New(fault.Full, "VM %s requires %d MiB on storage %s, %d MiB are free", vm.Name, need.bytes>>20, need.of.ID, need.of.Avail>>20).
				WithHint("free %d MiB, or set another storage with storage= or import=; on the node: pvesm status", (need.bytes-need.of.Avail)>>20+1)
		}
	}
	return nil
}

// neededPrivileges returns the privileges for a delivery by path. vmid is any free VMID. SDN.Use is
// needed on bridges;
// a VNet is listed only if the token has it.
func (c checker) neededPrivileges(vm *inventory.VM, vmid int, t requirements) map[string][]string {
	guest := []string{
		"VM.Allocate", "VM.Audit", "VM.Config.Disk", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network",
		"VM.Config.HWType", "VM.Config.Options",
	}
	if vm.CDROMs > 0 {
		guest = append(guest, "VM.Config.CDROM")
	}
	needs := map[string][]string{
		fmt.Sprintf("/vms/%d", vmid): guest,
	}
	for _, s := range t.into {
		needs["/storage/"+s.ID] = []string{"Datastore.AllocateSpace"}
	}
	// Datastore.Allocate is required to delete uploads, and volumes that no guest uses.
	if c.opts.isDirect() {
		for _, s := range t.into {
			at := "/storage/" + s.ID
			needs[at] = append(needs[at], "Datastore.Audit", "Datastore.Allocate")
		}
	} else {
		at := "/storage/" + t.uploads.ID
		needs[at] = append(needs[at], "Datastore.AllocateTemplate", "Datastore.Audit", "Datastore.Allocate")
	}
	for _, n := range t.networks {
		if !isVNet(t.kinds[n.bridge]) {
			needs[n.permissionPath()] = []string{"SDN.Use"}
		}
	}
	return needs
}

// checkRights returns fault.Denied with all missing privileges, and the commands that grant them.
func (c checker) checkRights(ctx context.Context, vm *inventory.VM, t requirements) error {
	vmid, err := c.guests.nextID(ctx)
	if err != nil {
		return err
	}
	needs := c.neededPrivileges(vm, vmid, t)
	var lacking, remedy []string
	for _, path := range slices.Sorted(maps.Keys(needs)) {
		missing, err := c.api.missingPrivileges(ctx, path, needs[path])
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			continue
		}
		path = strings.TrimSuffix(path, fmt.Sprintf("/%d", vmid)) // the next VM has another VMID
		lacking = append(lacking, strings.Join(missing, ", ")+" on "+path)
		remedy = append(remedy, c.api.token.grantCommand("Decamp", path, missing))
	}
	if len(lacking) == 0 {
		return nil
	}
	return fault.New(fault.Denied, "token %s lacks %s", c.api.token.name(), strings.Join(lacking, "; ")).
		WithHint("%s", strings.Join(remedy, "; "))
}

// checkNetworks returns fault.NotFound for bridges that the node does not have. Proxmox detects this
// only when it starts
// the guest. Bridges with a VLAN are not checked: a token with a privilege on the VLAN alone may not
// see the bridge.
func (c checker) checkNetworks(vm *inventory.VM, t requirements) error {
	for i, card := range vm.NICs {
		n := t.networks[i]
		if _, ok := t.kinds[n.bridge]; ok || n.tag != 0 {
			continue
		}
		return fault.New(fault.NotFound, "node %s has no bridge %s for cards of VMware's network %s", c.node, n.bridge, card.Network).
			WithHint("set an existing bridge with bridge=BRIDGE or in a map of networks; list them on the node: pvesh get /nodes/%s/network --type any_bridge", c.node)
	}
	return nil
}
