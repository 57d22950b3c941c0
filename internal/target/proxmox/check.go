package proxmox

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/target"
)

// Check says whether vm could be delivered. It asks only, and changes nothing.
func (p *Place) Check(ctx context.Context, vm *inventory.VM) error {
	m, err := Config(target.Definition{VM: vm}, p.opts)
	if err != nil {
		return err
	}
	if err := p.checkVersion(ctx); err != nil {
		return err
	}
	if err := p.checkOnline(ctx); err != nil {
		return err
	}
	list, err := p.guests(ctx)
	if err != nil {
		return err
	}
	if err := p.checkName(vm, m.Name, list); err != nil {
		return err
	}
	return p.checkThings(ctx, vm)
}

// checkName refuses a name that a guest of somebody else's has. Proxmox would take it twice, and
// nobody could tell the two apart in its list.
func (p *Place) checkName(vm *inventory.VM, name string, list []resource) error {
	for _, r := range list {
		if r.Name == name && !r.tagged(ownTag(vm)) {
			return fault.New(fault.Conflict, "guest %d on %s is called %s already", r.VMID, r.Node, name).
				WithHint("rename one of the two, such as: qm set %d --name %s-old", r.VMID, name)
		}
	}
	return nil
}

// checkThings looks at storages and networks, and at the rights on both.
func (p *Place) checkThings(ctx context.Context, vm *inventory.VM) error {
	list, err := p.storages(ctx)
	if err != nil {
		return err
	}
	disks, err := p.disksOn(list)
	if err != nil {
		return err
	}
	uploads, err := p.uploadsOn(list)
	if err != nil {
		return err
	}
	kinds, err := p.bridges(ctx)
	if err != nil {
		return err
	}
	if err := p.checkRights(ctx, vm, uploads.ID, kinds); err != nil {
		return err
	}
	if err := p.checkNetworks(vm, kinds); err != nil {
		return err
	}
	return checkRoom(vm, disks, uploads)
}

// checkRoom compares what the storages have with what the disks take for certain: all of them on
// the one, and the largest on the other, which may be the same.
func checkRoom(vm *inventory.VM, disks, uploads storage) error {
	var sum, largest int64
	for _, d := range vm.Disks {
		least := int64(0) // of a thick disk it is not known how much of it is zeros
		if d.Thin && d.Used > 0 {
			least = min(d.Used, d.Capacity)
		}
		largest = max(largest, least)
		if disks.thick() {
			least = d.Capacity
		}
		sum += least
	}
	if disks.ID == uploads.ID {
		sum += largest
	}
	for _, need := range []struct {
		of    storage
		bytes int64
	}{{disks, sum}, {uploads, largest}} {
		if need.bytes > need.of.Avail {
			return fault.New(fault.Full, "VM %s needs %d MiB on storage %s, %d MiB are free", vm.Name, need.bytes>>20, need.of.ID, need.of.Avail>>20).
				WithHint("free %d MiB, or name another with storage= or import=; on the node: pvesm status", (need.bytes-need.of.Avail)>>20+1)
		}
	}
	return nil
}

// needs are the privileges that a delivery takes, by path.
func (p *Place) needs(vm *inventory.VM, vmid int, uploads string, kinds map[string]string) map[string][]string {
	guest := []string{
		"VM.Allocate", "VM.Audit", "VM.Config.Disk", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network",
		"VM.Config.HWType", "VM.Config.Options",
	}
	if vm.CDROMs > 0 {
		guest = append(guest, "VM.Config.CDROM")
	}
	needs := map[string][]string{
		fmt.Sprintf("/vms/%d", vmid): guest,
		"/storage/" + p.opts.Storage: {"Datastore.AllocateSpace"},
	}
	// What was uploaded is deleted by Datastore.Allocate, and by nothing less.
	at := "/storage/" + uploads
	needs[at] = append(needs[at], "Datastore.AllocateTemplate", "Datastore.Audit", "Datastore.Allocate")
	for _, card := range vm.NICs {
		if n := p.opts.network(card); !isVNet(kinds[n.bridge]) {
			needs[n.path()] = []string{"SDN.Use"}
		}
	}
	return needs
}

// checkRights asks for each privilege, path by path, and tells all that lack at once.
func (p *Place) checkRights(ctx context.Context, vm *inventory.VM, uploads string, kinds map[string]string) error {
	vmid, err := p.nextID(ctx)
	if err != nil {
		return err
	}
	needs := p.needs(vm, vmid, uploads, kinds)
	var lacking, remedy []string
	for _, path := range slices.Sorted(maps.Keys(needs)) {
		missing, err := p.lacking(ctx, path, needs[path])
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			continue
		}
		path = strings.TrimSuffix(path, fmt.Sprintf("/%d", vmid)) // the next VM has another VMID
		role := "Decamp" + strings.NewReplacer("/", "-", ".", "-").Replace(path)
		lacking = append(lacking, strings.Join(missing, ", ")+" on "+path)
		remedy = append(remedy, fmt.Sprintf("pveum role add %s --privs %s; pveum acl modify %s --tokens %s --roles %s",
			role, fault.Quote(strings.Join(missing, " ")), path, fault.Quote(p.api.token.name()), role))
	}
	if len(lacking) == 0 {
		return nil
	}
	return fault.New(fault.Denied, "token %s lacks %s", p.api.token.name(), strings.Join(lacking, "; ")).
		WithHint("%s", strings.Join(remedy, "; "))
}

func (p *Place) lacking(ctx context.Context, path string, privileges []string) ([]string, error) {
	var held map[string]map[string]int
	if err := p.api.get(ctx, "/access/permissions", url.Values{"path": {path}}, &held); err != nil {
		return nil, err
	}
	var missing []string
	for _, privilege := range privileges {
		if _, ok := held[path][privilege]; !ok { // the value says whether it goes on below
			missing = append(missing, privilege)
		}
	}
	return missing, nil
}
