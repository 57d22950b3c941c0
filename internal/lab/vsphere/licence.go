package vsphere

import (
	"cmp"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// freeEdition is the edition key of the free hypervisor (williamlam.com, 2011). That of 8.0U3e
// is not known.
const freeEdition = "esxBasic"

// license shows the free licence, where the lab has it, and when one for evaluation ends.
func (a *vimAPI) license(reg *simulator.Registry) {
	m, ok := reg.Get(types.ManagedObjectReference{Type: "LicenseManager", Value: "ha-license-manager"}).(*simulator.LicenseManager)
	if !ok {
		return // a vCenter: its hosts are never free ones
	}
	if ends := a.lab.cfg.EvaluationEnds; !ends.IsZero() {
		m.Evaluation.Properties = []types.KeyAnyValue{{Key: "expirationDate", Value: ends.UTC()}}
	}
	if !a.lab.cfg.ReadOnlyLicence {
		return
	}
	m.Licenses = []types.LicenseManagerLicenseInfo{{
		LicenseKey: "00000-00000-00000-00000-00000", EditionKey: cmp.Or(a.lab.cfg.LicenceEdition, freeEdition), Name: "VMware vSphere Hypervisor",
	}}
}
