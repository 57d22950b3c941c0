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

// A checker reports whether VMs could be delivered. It only reads and is safe for concurrent use.
type checker struct {
	clients
	opts Options
}

// check reports why vm cannot be delivered.
func (c checker) check(ctx context.Context, vm *inventory.VM) error {
	m, err := Config(targets.Definition{VM: vm}, c.opts)
	if err != nil {
		return err
	}
	version, err := c.api.version(ctx)
	if err != nil {
		return err
	}
	if err := c.checkVersion(version); err != nil {
		return err
	}
	if err := c.checkOnline(ctx); err != nil {
		return err
	}
	list, err := c.guests.list(ctx)
	if err != nil {
		return err
	}
	if err := checkName(vm, m.Name, list); err != nil {
		return err
	}
	return c.checkRequirements(ctx, vm)
}

// checkName refuses a name that a guest of somebody else's has. Proxmox would take it twice, and
// nobody could tell the two apart in its list.
func checkName(vm *inventory.VM, name string, list []resource) error {
	for _, r := range list {
		if r.Name == name && !r.tagged(ownTag(vm)) {
			return fault.New(fault.Conflict, "guest %d on %s is called %s already", r.VMID, r.Node, name).
				WithHint("rename one of the two, such as: qm set %d --name %s-old", r.VMID, name)
		}
	}
	return nil
}

// Requirements are the storages and networks that a guest is to use.
type requirements struct {
	into    []share
	uploads storage
	kinds   map[string]string // of networks, by name
	joined  []network         // by the VM's cards
}

// checkRequirements looks at storages and networks, and at the rights on both.
func (c checker) checkRequirements(ctx context.Context, vm *inventory.VM) error {
	t, err := c.requirements(ctx, vm)
	if err != nil {
		return err
	}
	if err := c.checkRights(ctx, vm, t); err != nil {
		return err
	}
	if err := c.checkNetworks(vm, t); err != nil {
		return err
	}
	if !c.opts.direct() {
		return checkRoom(vm, t.into, t.uploads)
	}
	for i := range t.into {
		had, err := c.volumes.size(ctx, vm, t.into[i].ID)
		if err != nil {
			return err
		}
		t.into[i].Avail += had
	}
	return checkRoom(vm, t.into, storage{Avail: math.MaxInt64}) // nothing is uploaded
}

func (c checker) requirements(ctx context.Context, vm *inventory.VM) (t requirements, err error) {
	list, err := c.storages.list(ctx)
	if err != nil {
		return t, err
	}
	if t.into, err = c.shares(vm, list); err != nil {
		return t, err
	}
	if c.opts.direct() {
		err = c.shell.check(ctx)
	} else {
		t.uploads, err = c.storages.forUploads(c.opts.Import, list)
	}
	if err != nil {
		return t, err
	}
	if t.kinds, err = c.api.bridges(ctx, c.node); err != nil {
		return t, err
	}
	t.joined, err = c.opts.networks(vm)
	return t, err
}

// A share is what of a VM goes to one storage.
type share struct {
	storage
	disks []inventory.Disk
}

// shares says what each storage gets, in the order in which disks come to them. The one for what belongs
// to no disk is there also without any.
func (c checker) shares(vm *inventory.VM, list []storage) ([]share, error) {
	var into []share
	add := func(datastore string, disks ...inventory.Disk) error {
		name, err := c.opts.storage(datastore)
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

// least is what a disk takes for certain: of a thick one it is not known how much of it is zeros.
func least(d inventory.Disk) int64 {
	if d.Thin && d.Used > 0 {
		return min(d.Used, d.Capacity)
	}
	return 0
}

// checkRoom compares what the storages have with what the disks take for certain: each of its own, and
// the largest of all on the one for uploads, which may be one of the others.
func checkRoom(vm *inventory.VM, into []share, uploads storage) error {
	type need struct {
		of    storage
		bytes int64
	}
	var largest int64
	for _, d := range vm.Disks {
		largest = max(largest, least(d))
	}
	needs := []need{{uploads, largest}}
	for _, s := range into {
		n := need{of: s.storage}
		for _, d := range s.disks {
			if s.thick() {
				n.bytes += d.Capacity
			} else {
				n.bytes += least(d)
			}
		}
		if s.ID == uploads.ID {
			n.bytes += largest
		}
		needs = append(needs, n)
	}
	for _, need := range needs {
		if need.bytes > need.of.Avail {
			return fault.New(fault.Full, "VM %s needs %d MiB on storage %s, %d MiB are free", vm.Name, need.bytes>>20, need.of.ID, need.of.Avail>>20).
				WithHint("free %d MiB, or name another with storage= or import=; on the node: pvesm status", (need.bytes-need.of.Avail)>>20+1)
		}
	}
	return nil
}

// needs are the privileges that a delivery takes, by path.
func (c checker) needs(vm *inventory.VM, vmid int, t requirements) map[string][]string {
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
	// What was uploaded, and a volume that no guest has, is deleted by Datastore.Allocate, and by nothing less.
	if c.opts.direct() {
		for _, s := range t.into {
			at := "/storage/" + s.ID
			needs[at] = append(needs[at], "Datastore.Audit", "Datastore.Allocate")
		}
	} else {
		at := "/storage/" + t.uploads.ID
		needs[at] = append(needs[at], "Datastore.AllocateTemplate", "Datastore.Audit", "Datastore.Allocate")
	}
	for _, n := range t.joined {
		if !isVNet(t.kinds[n.bridge]) {
			needs[n.path()] = []string{"SDN.Use"}
		}
	}
	return needs
}

// checkRights asks for each privilege, path by path, and tells all that lack at once.
func (c checker) checkRights(ctx context.Context, vm *inventory.VM, t requirements) error {
	vmid, err := c.guests.nextID(ctx)
	if err != nil {
		return err
	}
	needs := c.needs(vm, vmid, t)
	var lacking, remedy []string
	for _, path := range slices.Sorted(maps.Keys(needs)) {
		missing, err := c.api.lacking(ctx, path, needs[path])
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			continue
		}
		path = strings.TrimSuffix(path, fmt.Sprintf("/%d", vmid)) // the next VM has another VMID
		lacking = append(lacking, strings.Join(missing, ", ")+" on "+path)
		remedy = append(remedy, c.api.token.grant("Decamp", path, missing))
	}
	if len(lacking) == 0 {
		return nil
	}
	return fault.New(fault.Denied, "token %s lacks %s", c.api.token.name(), strings.Join(lacking, "; ")).
		WithHint("%s", strings.Join(remedy, "; "))
}

// checkNetworks refuses bridges that there are not: Proxmox would, when the guest is started. A
// right that is held on a VLAN alone may leave its bridge off the list.
func (c checker) checkNetworks(vm *inventory.VM, t requirements) error {
	for i, card := range vm.NICs {
		n := t.joined[i]
		if _, ok := t.kinds[n.bridge]; ok || n.tag != 0 {
			continue
		}
		return fault.New(fault.NotFound, "node %s has no bridge %s for cards of VMware's network %s", c.node, n.bridge, card.Network).
			WithHint("say which it is: bridge=BRIDGE, or a map of networks; on the node: pvesh get /nodes/%s/network --type any_bridge", c.node)
	}
	return nil
}
