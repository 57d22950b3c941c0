package assemble

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/doctor/export"
	hostcheck "github.com/decamp/decamp/internal/doctor/host"
	"github.com/decamp/decamp/internal/doctor/local"
	"github.com/decamp/decamp/internal/doctor/path"
	placecheck "github.com/decamp/decamp/internal/doctor/platform"
	vmcheck "github.com/decamp/decamp/internal/doctor/vm"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
)

// Groups returns all checks that have an object. Among equally severe findings those on this machine
// come first: they affect every VM.
func (d *Diagnosis) Groups() []doctor.Check {
	if d.Parts.Session == nil {
		return d.localChecks()
	}
	return slices.Concat(d.localChecks(), d.sourceChecks())
}

// localChecks returns the checks of this machine, and of the network path from it.
func (d *Diagnosis) localChecks() []doctor.Check {
	return slices.Concat(
		checksOfEach(d.targetFolders(), func(folder string) []doctor.Check { return local.Checks(d.localOptions(folder)) }),
		checksOfEach(d.targetFolders(), func(folder string) []doctor.Check { return export.Checks(d.exportOptions(folder)) }),
		checksOfEach(d.networkPaths(), path.Checks),
		checksOfEach(d.placeOptions(), placecheck.Checks),
	)
}

// placeOptions returns the platforms of the destinations. It returns one empty element if there are
// none, or if a migration follows, because that checks its platforms itself.
func (d *Diagnosis) placeOptions() []placecheck.Options {
	var all []placecheck.Options
	for _, to := range d.Parts.To {
		if p, ok := to.Target.(placecheck.Examiner); ok && !d.quiet {
			name, _, _ := strings.Cut(to.Name, "?")
			all = append(all, placecheck.Options{Name: name, Platform: p})
		}
	}
	if len(all) == 0 {
		return []placecheck.Options{{}}
	}
	return all
}

// checksOfEach merges the checks that group returns for each thing.
func checksOfEach[T any](things []T, group func(T) []doctor.Check) []doctor.Check {
	var all [][]doctor.Check
	for _, thing := range things {
		all = append(all, group(thing))
	}
	return doctor.Merge(all...)
}

// targetFolders returns the folder of each destination; one empty name if there are no destinations.
func (d *Diagnosis) targetFolders() []string {
	var all []string
	for _, to := range d.Parts.To {
		all = append(all, to.To.Folder())
	}
	if len(all) == 0 {
		return []string{""}
	}
	return all
}

// localOptions describes a folder and the disks that will be written to it. Without selected VMs the
// disks are left out: not all of them will be migrated.
func (d *Diagnosis) localOptions(folder string) local.Options {
	o := local.Options{Folder: folder, Tmpfs: d.Move.Tmpfs}
	if d.survey { // the user did not select all of them
		return o
	}
	for i := range d.vms {
		for _, disk := range d.vms[i].Disks {
			o.Disks = append(o.Disks, local.Disk{Name: disk.Path.String(), Size: disk.Capacity, Allocated: maxAllocated(disk)})
		}
	}
	return o
}

// maxAllocated returns the bytes that an image of a disk requires at most: its allocated bytes, or its
// size if they are unknown.
func maxAllocated(d inventory.Disk) int64 {
	if d.Used < 0 {
		return d.Capacity
	}
	return min(d.Used, d.Capacity)
}

// exportOptions describes a folder with the NFS mounts of the hosts, and with the addresses from which
// hosts send NFS requests.
func (d *Diagnosis) exportOptions(folder string) export.Options {
	o := export.Options{Folder: folder}
	for _, h := range d.hosts {
		if addr, err := netip.ParseAddr(d.managementNIC(h.Ref).Address); err == nil {
			o.Hosts = append(o.Hosts, export.Host{Name: h.Name, Addr: addr})
		}
		for _, m := range d.mounts[h.Ref] {
			o.Mounts = append(o.Mounts, export.Mount{Host: h.Name, Datastore: m.Datastore, Server: m.Server, Path: m.Path})
		}
	}
	return o
}

// networkPaths returns the network paths of data: to the server of the session, and to the hosts of a
// vCenter if the transport reads from them. It returns one empty element if there is no session.
func (d *Diagnosis) networkPaths() []path.Options {
	if d.Parts.Session == nil {
		return []path.Options{{}}
	}
	u := d.Parts.URL
	port, _ := strconv.Atoi(u.Port()) // none: the usual one
	all := []path.Options{{Host: u.Hostname(), Port: port, Transport: string(d.Move.Transport)}}
	if u.Scheme != "vcenter" {
		if len(d.hosts) == 1 {
			all[0].HostMTU, all[0].NFC = d.managementNIC(d.hosts[0].Ref).MTU, d.nfcAddrs[d.hosts[0].Ref]
		}
		return all
	}
	// a vCenter has only the API; port 902 is a port of hosts
	all[0].Transport = path.HTTPS
	if d.Move.Transport == path.HTTPS {
		return all
	}
	for _, h := range d.hosts {
		nic := d.managementNIC(h.Ref)
		addr, port := splitAddress(h.Address)
		if addr = cmp.Or(nic.Address, addr); addr != "" {
			all = append(all, path.Options{Host: addr, Port: port, Transport: string(d.Move.Transport), HostMTU: nic.MTU, NFC: d.nfcAddrs[h.Ref]})
		}
	}
	return all
}

// splitAddress returns the name and the port of a host in the inventory. The port is 0 if the inventory
// has none.
func splitAddress(addr string) (name string, port int) {
	name, text, err := net.SplitHostPort(addr)
	if err != nil {
		return addr, 0
	}
	port, _ = strconv.Atoi(text) // 0: the usual port
	return name, port
}

// managementNIC returns the VMkernel NIC of a host that has the address of the session's URL; otherwise
// its first one. The result is zero if the NICs are unknown.
func (d *Diagnosis) managementNIC(host inventory.MoRef) (nic inventory.VMkernelNIC) {
	for i, n := range d.nics[host] {
		if i == 0 || n.Address == d.Parts.URL.Hostname() {
			nic = n
		}
	}
	return nic
}

// sourceChecks returns the checks that require a login.
func (d *Diagnosis) sourceChecks() []doctor.Check {
	return slices.Concat(
		hostcheck.Checks(d.HostOptions()),
		vmcheck.Checks(d.vmOptions()),
	)
}

// HostOptions returns the options of the checks of hosts. The session must be open.
func (d *Diagnosis) HostOptions() hostcheck.Options {
	w := d.Parts
	return hostcheck.Options{
		Source: w.Session, User: w.URL.User.Username(), VCenter: w.Session.About().VCenter,
		Hosts: d.hosts, Datastores: d.stores, VMs: d.vms, Use: d.sourceUse(),
	}
}

// vmOptions returns the options of the checks of VMs. Disks are read only for selected VMs, because a
// source may have thousands.
func (d *Diagnosis) vmOptions() vmcheck.Options {
	o := vmcheck.Options{
		Source: d.Parts.Session, VMs: d.vms, All: d.all, Transport: d.Parts.Transport,
		Permit: preflight.PermitOf(d.Move.Options), Warm: d.Move.Mode == planfile.WarmMode, Survey: d.survey, Refused: d.quiet,
	}
	if !d.survey { // an unselected list can have thousands of VMs
		o.Inspect = d.Parts.InspectGuest
	}
	for _, to := range d.Parts.To {
		o.Targets = append(o.Targets, to.Target)
		o.AtTarget = append(o.AtTarget, Moved(to.To.Folder())...)
	}
	return o
}

// hasObjects reports whether a VM that the user named has a disk without a data file. A landing copies
// such disks by SSH.
func (d *Diagnosis) hasObjects() bool {
	return !d.survey && slices.ContainsFunc(d.vms, func(vm inventory.VM) bool {
		return slices.ContainsFunc(vm.Disks, func(disk inventory.Disk) bool { return disk.Backing.IsObject() })
	})
}

// sourceUse returns which functions of the source the migration requires.
func (d *Diagnosis) sourceUse() hostcheck.Use {
	o := d.Move
	return hostcheck.Use{
		Transport: string(o.Transport), Warm: o.Mode == planfile.WarmMode, PowerOff: o.PowerOff != planfile.NeverOff,
		SSH: o.SourceHash || o.Transport == "landing" && (o.Landing.Copy == "ssh" || o.Landing.Copy == "auto" && d.hasObjects()), StartSSH: o.SSH.Enable,
		NFCMemory: int64(o.NFC.Handles) * BuffersOf(o.NFC).Memory(),
	}
}
