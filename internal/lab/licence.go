package lab

import (
	"cmp"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// freeEdition is the edition key of the free hypervisor (williamlam.com, 2011). That of 8.0U3e
// is not known.
const freeEdition = "esxBasic"

// license shows the free licence, where the lab has it, and when one for evaluation ends.
func (l *Lab) license(reg *simulator.Registry) {
	m, ok := reg.Get(types.ManagedObjectReference{Type: "LicenseManager", Value: "ha-license-manager"}).(*simulator.LicenseManager)
	if !ok {
		return // a vCenter: its hosts are never free ones
	}
	if ends := l.cfg.EvaluationEnds; !ends.IsZero() {
		m.Evaluation.Properties = []types.KeyAnyValue{{Key: "expirationDate", Value: ends.UTC()}}
	}
	if !l.cfg.ReadOnlyLicence {
		return
	}
	m.Licenses = []types.LicenseManagerLicenseInfo{{
		LicenseKey: "00000-00000-00000-00000-00000", EditionKey: cmp.Or(l.cfg.LicenceEdition, freeEdition), Name: "VMware vSphere Hypervisor",
	}}
}
