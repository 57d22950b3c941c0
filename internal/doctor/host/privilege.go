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
	privilege string         // name in vSphere
	on        inventory.Kind // kind of the objects
	why       string         // what the privilege permits and what requires it, for messages
	when      func(Use) bool // reports whether a migration needs it
}

// isWarm reports whether the migration is warm.
func isWarm(u Use) bool { return u.Warm }

// needsPower reports whether decamp changes the power state of VMs.
func needsPower(u Use) bool { return u.Warm || u.PowerOff }

// isLanding reports whether hosts copy to a landing.
func isLanding(u Use) bool { return u.Transport == "landing" }

// needs lists the privileges. Those of API calls are from "Required Privileges" in the
// API reference; those of /folder and NFC are from the manuals of virt-v2v and of
// VMware's disk library.
var needs = []need{
	{"Datastore.Browse", inventory.OnDatastore, "privilege to list files of datastores, which --transport https requires", func(u Use) bool { return u.Transport == "https" }},
	{"Datastore.FileManagement", inventory.OnDatastore, "privilege to read files of datastores, which --transport https and copies by the host require", func(u Use) bool { return u.Transport != "nfc" }},
	{"VirtualMachine.Provisioning.GetVmFiles", inventory.OnVM, "privilege to request NFC tickets, which reading disks over NFC requires", Use.usesNFC},
	{"VirtualMachine.Provisioning.DiskRandomRead", inventory.OnVM, "privilege to query allocated and changed areas of disks", func(u Use) bool { return u.Warm || u.Transport != "landing" }},
	{"VirtualMachine.State.CreateSnapshot", inventory.OnVM, "privilege to create snapshots, which precopy rounds require", isWarm},
	{"VirtualMachine.State.RemoveSnapshot", inventory.OnVM, "privilege to remove snapshots, which precopy rounds require", isWarm},
	{"VirtualMachine.Config.ChangeTracking", inventory.OnVM, "privilege to configure change tracking, which precopy rounds require", isWarm},
	{"VirtualMachine.Interact.PowerOff", inventory.OnVM, "privilege to shut down running VMs", needsPower},
	{"VirtualMachine.Interact.PowerOn", inventory.OnVM, "privilege to power on VMs, which a failed cutover and decamp rollback require", needsPower},
	{"Host.Config.Storage", inventory.OnHost, "privilege to mount datastores, which --transport landing requires", isLanding},
	{"Host.Config.NetService", inventory.OnHost, "privilege to start services, which --enable-ssh requires", func(u Use) bool { return u.StartSSH }},
}

// checkPrivileges reports each missing privilege.
func (g *group) checkPrivileges(ctx context.Context) (found []doctor.Finding) {
	for _, kind := range []inventory.Kind{inventory.OnVM, inventory.OnHost, inventory.OnDatastore} {
		found = append(found, g.checkPrivilegesOn(ctx, kind)...)
	}
	return found
}

// checkPrivilegesOn examines the privileges for one kind of objects with one query.
func (g *group) checkPrivilegesOn(ctx context.Context, kind inventory.Kind) (found []doctor.Finding) {
	refs, names := g.objectsOf(kind)
	var wanted []need
	var ids []string
	// One query covers all privileges for one kind of object.
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
		return []doctor.Finding{unknownFinding(err)}
	}
	for _, n := range wanted {
		found = append(found, g.toFinding(n, lacking[n.privilege], refs, names))
	}
	return found
}

// toFinding returns the finding for one privilege. lacking contains the objects without
// it; the finding names the first one and the number of the others.
func (g *group) toFinding(n need, lacking, of []inventory.MoRef, names map[inventory.MoRef]string) doctor.Finding {
	f := doctor.Finding{On: n.privilege, Found: fmt.Sprintf("user %s has the privilege", g.User), Want: n.why}
	if len(lacking) == 0 {
		return f
	}
	f.Status, f.Remedy = doctor.Failure, g.grantCommand(n.privilege)
	f.On, f.Found = names[lacking[0]], fmt.Sprintf("user %s has no privilege %s", g.User, n.privilege)
	if more := len(lacking) - 1; more > 0 {
		f.On += fmt.Sprintf(" and %d more of %d", more, len(of))
	}
	return f
}

// grantCommand returns the commands that give the account a privilege.
func (g *group) grantCommand(privilege string) string {
	const role = "govc role.create decamp 2>/dev/null; govc role.update -a decamp "
	set := "govc permissions.set -principal " + fault.Quote(g.User) + " -role decamp -propagate=true /"
	if !g.VCenter {
		set += "\n# or assign the role Admin, on the host:\nesxcli system permission set --id " + fault.Quote(g.User) + " --role Admin"
	}
	return role + privilege + "\n" + set
}

// objectsOf returns the objects of a kind that the migration uses, with their names.
func (g *group) objectsOf(kind inventory.Kind) ([]inventory.MoRef, map[inventory.MoRef]string) {
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
