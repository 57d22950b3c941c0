package main

import (
	"slices"

	"github.com/decamp/decamp/internal/doctor"
	hostcheck "github.com/decamp/decamp/internal/doctor/host"
	vmcheck "github.com/decamp/decamp/internal/doctor/vm"
)

// groups are all checks that there is something to look at for. Of what is equally bad, this side is
// told first: its mistakes cost every VM.
func (d *diagnosis) groups() []doctor.Check {
	if d.works.session == nil {
		return d.ofThisSide()
	}
	return slices.Concat(d.ofThisSide(), d.ofTheSource())
}

// ofThisSide are the groups that look at this machine and at the way from it, a group a line.
func (d *diagnosis) ofThisSide() []doctor.Check {
	return slices.Concat[[]doctor.Check]()
}

// ofTheSource are the groups that need a login, a group a line.
func (d *diagnosis) ofTheSource() []doctor.Check {
	return slices.Concat(
		hostcheck.Checks(d.hostOptions()),
		vmcheck.Checks(d.vmOptions()),
	)
}

func (d *diagnosis) hostOptions() hostcheck.Options {
	w := d.works
	return hostcheck.Options{
		Source: w.session, User: w.url.User.Username(), VCenter: w.session.About().VCenter,
		Hosts: d.hosts, Datastores: d.stores, VMs: d.vms, Use: d.use(),
	}
}

func (d *diagnosis) vmOptions() vmcheck.Options {
	o := vmcheck.Options{
		Source: d.works.session, VMs: d.vms, All: d.all, Transport: d.works.transport,
		Permit: d.move.permit(), Warm: d.move.warm.on, Survey: d.survey, Refused: d.beside,
	}
	for _, to := range d.works.to {
		o.Places = append(o.Places, to.target)
		o.There = append(o.There, moved(to.name)...)
	}
	return o
}

// use is what the move takes of its source.
func (d *diagnosis) use() hostcheck.Use {
	o := d.move
	return hostcheck.Use{
		Transport: o.transport, Warm: o.warm.on, PowerOff: o.powerOff,
		SSH: o.sourceHash || o.transport == "landing" && o.landing.copy == "ssh", StartSSH: o.landing.ssh.enable,
		NFCMemory: int64(o.nfc.handles) * o.nfc.want().Memory(),
	}
}
