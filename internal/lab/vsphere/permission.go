package vsphere

import (
	"cmp"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// privilegeOf maps calls to the privilege that they require (API reference, "Required Privileges"). The
// NFC call is not in the reference; its privilege is the one in VMware's backup guide for reading
// disks. Calls that are not listed are permitted.
var privilegeOf = map[string]string{
	"CreateSnapshot_Task":   "VirtualMachine.State.CreateSnapshot",
	"CreateSnapshotEx_Task": "VirtualMachine.State.CreateSnapshot",
	"RemoveSnapshot_Task":   "VirtualMachine.State.RemoveSnapshot",
	"QueryChangedDiskAreas": "VirtualMachine.Provisioning.DiskRandomRead",
	"NfcGetVmFiles":         "VirtualMachine.Provisioning.GetVmFiles",
	"ReconfigVM_Task":       "VirtualMachine.Config.ChangeTracking",
	"PowerOffVM_Task":       "VirtualMachine.Interact.PowerOff",
	"ShutdownGuest":         "VirtualMachine.Interact.PowerOff",
	"PowerOnVM_Task":        "VirtualMachine.Interact.PowerOn",
	"CreateNasDatastore":    "Host.Config.Storage",
	"RemoveDatastore":       "Host.Config.Storage",
	"CopyVirtualDisk_Task":  "Datastore.FileManagement",
	"StartService":          "Host.Config.NetService",
	"StopService":           "Host.Config.NetService",
}

// deniedFault returns the fault of a call whose privilege the account lacks, or nil.
func (a *vimAPI) deniedFault(method *simulator.Method) types.BaseMethodFault {
	needed := privilegeOf[method.Name]
	if needed == "" || !slices.Contains(a.lab.cfg.Lacks, needed) {
		return nil
	}
	return &types.NoPermission{Object: &method.This, PrivilegeId: needed}
}

// An authorizationManager answers for an account that lacks privileges. The simulator's grants all
// privileges to all accounts.
type authorizationManager struct {
	*simulator.AuthorizationManager
	lab *Lab // emulator with the configuration
}

// HasPrivilegeOnEntities answers for the only account, regardless of the session.
func (m *authorizationManager) HasPrivilegeOnEntities(req *types.HasPrivilegeOnEntities) soap.HasFault {
	res := &types.HasPrivilegeOnEntitiesResponse{}
	for _, e := range req.Entity {
		has := types.EntityPrivilege{Entity: e}
		for _, id := range req.PrivId {
			has.PrivAvailability = append(has.PrivAvailability, types.PrivilegeAvailability{PrivId: id, IsGranted: !slices.Contains(m.lab.cfg.Lacks, id)})
		}
		res.Returnval = append(res.Returnval, has)
	}
	return &methods.HasPrivilegeOnEntitiesBody{Res: res}
}

// freeEdition is the edition key of the free hypervisor (williamlam.com, 2011). The key of 8.0U3e is
// not known.
const freeEdition = "esxBasic"

// setLicence sets the free licence, if configured, and the end of an evaluation licence.
func (a *vimAPI) setLicence(reg *simulator.Registry) {
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
