package host

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// need is a privilege with its purpose.
type need struct {
	privilege string
	on        inventory.Kind
	why       string
	when      func(Use) bool
}

func warm(u Use) bool     { return u.Warm }
func switches(u Use) bool { return u.Warm || u.PowerOff }
func lands(u Use) bool    { return u.Transport == "landing" }

// needs are from the "Required Privileges" of the calls in the API reference; those of /folder
// and of NFC from the manuals of virt-v2v and of VMware's disk library.
var needs = []need{
	{"Datastore.Browse", inventory.OnDatastore, "disks are looked for over /folder", func(u Use) bool { return u.Transport == "https" }},
	{"Datastore.FileManagement", inventory.OnDatastore, "disks are read over /folder, or copied by the host", func(u Use) bool { return u.Transport != "nfc" }},
	{"VirtualMachine.Provisioning.GetVmFiles", inventory.OnVM, "NFC gives tickets for disks", Use.byNFC},
	{"VirtualMachine.Provisioning.DiskRandomRead", inventory.OnVM, "decamp queries the allocated and changed areas of disks", func(u Use) bool { return u.Warm || u.Transport != "landing" }},
	{"VirtualMachine.State.CreateSnapshot", inventory.OnVM, "a round freezes the VM's disks", warm},
	{"VirtualMachine.State.RemoveSnapshot", inventory.OnVM, "a round's snapshot is removed", warm},
	{"VirtualMachine.Config.ChangeTracking", inventory.OnVM, "change tracking is turned on, and off again", warm},
	{"VirtualMachine.Interact.PowerOff", inventory.OnVM, "VMs that run are shut down", switches},
	{"VirtualMachine.Interact.PowerOn", inventory.OnVM, "a VM is powered on again if its last round fails, or if its run is rolled back", switches},
	{"Host.Config.Storage", inventory.OnHost, "our datastore is mounted on hosts", lands},
	{"Host.Config.NetService", inventory.OnHost, "SSH is started", func(u Use) bool { return u.StartSSH }},
}

// privilege reports them one by one.
func (g *group) privilege(ctx context.Context) (found []doctor.Finding) {
	for _, kind := range []inventory.Kind{inventory.OnVM, inventory.OnHost, inventory.OnDatastore} {
		found = append(found, g.held(ctx, kind)...)
	}
	return found
}

// held looks at the privileges that are needed on one kind of things, with one question.
func (g *group) held(ctx context.Context, kind inventory.Kind) (found []doctor.Finding) {
	refs, names := g.things(kind)
	var wanted []need
	var ids []string
	for _, n := range needs {
		if n.on == kind && n.when(g.Use) {
			wanted, ids = append(wanted, n), append(ids, n.privilege)
		}
	}
	if len(refs) == 0 || len(ids) == 0 {
		return nil
	}
	lacking, err := g.Source.Lacking(ctx, kind, refs, ids)
	if err != nil {
		return []doctor.Finding{unknown(err)}
	}
	for _, n := range wanted {
		found = append(found, g.finding(n, lacking[n.privilege], refs, names))
	}
	return found
}

func (g *group) finding(n need, lacking, of []inventory.MoRef, names map[inventory.MoRef]string) doctor.Finding {
	f := doctor.Finding{On: n.privilege, Seen: fmt.Sprintf("%s has it", g.User), Want: "it is held: " + n.why}
	if len(lacking) == 0 {
		return f
	}
	f.Status, f.Remedy = doctor.Failure, g.grant(n.privilege)
	f.Seen = fmt.Sprintf("%s lacks it on %s", g.User, names[lacking[0]])
	if more := len(lacking) - 1; more > 0 {
		f.Seen += fmt.Sprintf(" and %d more of %d", more, len(of))
	}
	return f
}

// grant is how the account gets a privilege.
func (g *group) grant(privilege string) string {
	const role = "govc role.create decamp 2>/dev/null; govc role.update -a decamp "
	set := "govc permissions.set -principal " + fault.Quote(g.User) + " -role decamp -propagate=true /"
	if !g.VCenter {
		set += "\n# or make it an administrator, on the host:\nesxcli system permission set --id " + fault.Quote(g.User) + " --role Admin"
	}
	return role + privilege + "\n" + set
}

// things returns the objects of a kind that a migration uses, with their names.
func (g *group) things(kind inventory.Kind) ([]inventory.MoRef, map[inventory.MoRef]string) {
	var refs []inventory.MoRef
	names := map[inventory.MoRef]string{}
	add := func(ref inventory.MoRef, name string) {
		if _, there := names[ref]; !there {
			refs, names[ref] = append(refs, ref), name
		}
	}
	switch kind {
	case inventory.OnVM:
		for i := range g.VMs {
			add(g.VMs[i].Ref, "VM "+g.VMs[i].Name)
		}
	case inventory.OnHost:
		for _, h := range g.Hosts {
			add(h.Ref, onHost(h))
		}
	case inventory.OnDatastore:
		for _, d := range g.Datastores {
			add(d.Ref, onStore(d))
		}
	}
	return refs, names
}
