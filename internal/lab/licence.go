package lab

import (
	"cmp"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// freeEdition is the edition key of the free hypervisor (williamlam.com, 2011). That of 8.0U3e
// is not known.
const freeEdition = "esxBasic"

// license shows the free licence, where the lab has it.
func (l *Lab) license(reg *simulator.Registry) {
	if !l.cfg.ReadOnlyLicence {
		return
	}
	m, ok := reg.Get(types.ManagedObjectReference{Type: "LicenseManager", Value: "ha-license-manager"}).(*simulator.LicenseManager)
	if !ok {
		return // a vCenter: its hosts are never free ones
	}
	m.Licenses = []types.LicenseManagerLicenseInfo{{
		LicenseKey: "00000-00000-00000-00000-00000", EditionKey: cmp.Or(l.cfg.LicenceEdition, freeEdition), Name: "VMware vSphere Hypervisor",
	}}
}
