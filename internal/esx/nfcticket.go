package esx

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/nfc"
)

// The calls for NFC are in no public WSDL, so that govmomi has no types for them. Both
// are sent in urn:vim25, as VMware's library does.
type (
	// internalContentRequest is the request of RetrieveInternalContent.
	internalContentRequest struct {
		This types.ManagedObjectReference `xml:"_this"` // reference of the ServiceInstance
	}
	// internalContentResponse contains references to services that are not in the
	// public API.
	internalContentResponse struct {
		// only the field that is needed
		Returnval struct {
			NFC *types.ManagedObjectReference `xml:"nfcService"` // NFC service; nil without one
		} `xml:"returnval"`
	}
	// internalContentBody is the SOAP body of RetrieveInternalContent, request and
	// response.
	internalContentBody struct {
		Req *internalContentRequest `xml:"urn:vim25 RetrieveInternalContent,omitempty"` // set in requests
		// set in successful responses
		Res *internalContentResponse `xml:"RetrieveInternalContentResponse,omitempty"`
		// set in failed responses
		Fault_ *soap.Fault `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
	}

	// vmFilesRequest is the request of NfcGetVmFiles.
	vmFilesRequest struct {
		This types.ManagedObjectReference `xml:"_this"` // reference of the NFC service
		VM   types.ManagedObjectReference `xml:"vm"`    // VM whose disks are read
	}
	// vmFilesResponse contains the ticket for one NFC connection.
	vmFilesResponse struct {
		Returnval types.HostServiceTicket `xml:"returnval"` // ticket for one connection
	}
	// vmFilesBody is the SOAP body of NfcGetVmFiles, request and response.
	vmFilesBody struct {
		Req *vmFilesRequest  `xml:"urn:vim25 NfcGetVmFiles,omitempty"` // set in requests
		Res *vmFilesResponse `xml:"NfcGetVmFilesResponse,omitempty"`   // set in successful responses
		// set in failed responses
		Fault_ *soap.Fault `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
	}
)

// Fault is part of soap.HasFault.
func (b *internalContentBody) Fault() *soap.Fault { return b.Fault_ }

// Fault is part of soap.HasFault.
func (b *vmFilesBody) Fault() *soap.Fault { return b.Fault_ }

// NFCTicket requests a ticket for one NFC connection that reads the disks of a VM. If
// Host of the ticket is empty, the server of this session is the host.
func (s *hostController) NFCTicket(ctx context.Context, vm inventory.MoRef) (nfc.Ticket, error) {
	t, err := s.vmFiles(ctx, vm)
	if err != nil {
		return nfc.Ticket{}, fmt.Errorf("NFC ticket for VM %s: %w", vm, classify(err))
	}
	return nfc.Ticket{
		Host: t.Host, Port: int(t.Port), Thumbprint: t.SslThumbprint, Certificate: t.SslCertificate,
		Service: t.Service, Session: t.SessionId,
	}, nil
}

// vmFiles calls NfcGetVmFiles. A server without the service is fault.Unsupported.
func (s *hostController) vmFiles(ctx context.Context, vm inventory.MoRef) (types.HostServiceTicket, error) {
	service, err := s.nfcService(ctx)
	if err != nil {
		return types.HostServiceTicket{}, err
	}
	req := vmFilesBody{Req: &vmFilesRequest{This: service, VM: moRef("VirtualMachine", vm)}}
	var res vmFilesBody
	if err := s.RoundTrip(ctx, &req, &res); err != nil {
		return types.HostServiceTicket{}, err
	}
	// A server that does not implement the call may return an empty body.
	if res.Res == nil {
		return types.HostServiceTicket{}, noNFC()
	}
	return res.Res.Returnval, nil
}

// nfcService returns the reference of the NFC service, which differs between ESXi
// (ha-nfc-service) and vCenter (nfcService).
func (s *hostController) nfcService(ctx context.Context) (types.ManagedObjectReference, error) {
	req := internalContentBody{Req: &internalContentRequest{This: moRef("ServiceInstance", "ServiceInstance")}}
	var res internalContentBody
	if err := s.RoundTrip(ctx, &req, &res); err != nil {
		return types.ManagedObjectReference{}, err
	}
	if res.Res == nil || res.Res.Returnval.NFC == nil {
		return types.ManagedObjectReference{}, noNFC()
	}
	return moRef("NfcService", inventory.MoRef(res.Res.Returnval.NFC.Value)), nil
}

// noNFC returns the error for a server without an NFC service.
func noNFC() error {
	return fault.New(fault.Unsupported, "the server has no NFC service").WithHint("use --transport https")
}

// VMHost returns the ESXi host that has the VM now. vMotion moves VMs at any time.
func (s *hostController) VMHost(ctx context.Context, vm inventory.MoRef) (inventory.MoRef, error) {
	var m mo.VirtualMachine
	if err := s.readProperties(ctx, moRef("VirtualMachine", vm), &m, "runtime.host"); err != nil {
		return "", fmt.Errorf("read host of VM %s: %w", vm, classify(err))
	}
	if m.Runtime.Host == nil {
		return "", fault.New(fault.NotFound, "VM %s has no host", vm)
	}
	return inventory.MoRef(m.Runtime.Host.Value), nil
}

// HostVersion returns the product version of an ESXi host, such as 8.0.3. It is "" if
// the user may not read the host's configuration.
func (s *hostController) HostVersion(ctx context.Context, host inventory.MoRef) (string, error) {
	var h mo.HostSystem
	if err := s.readProperties(ctx, moRef("HostSystem", host), &h, "config.product"); err != nil {
		return "", fmt.Errorf("read version of host %s: %w", host, classify(err))
	}
	if h.Config == nil {
		return "", nil
	}
	return h.Config.Product.Version, nil
}

// VMkernelNICs returns the VMkernel interfaces of a host, with those that are tagged
// for backup traffic marked (vSphereBackupNFC, 7.0 and later).
func (s *hostController) VMkernelNICs(ctx context.Context, host inventory.MoRef) ([]inventory.VMkernelNIC, error) {
	var h mo.HostSystem
	if err := s.readProperties(ctx, moRef("HostSystem", host), &h, "config.network", "config.virtualNicManagerInfo"); err != nil {
		return nil, fmt.Errorf("list VMkernel interfaces of host %s: %w", host, classify(err))
	}
	if h.Config == nil {
		return nil, nil
	}
	var nics []types.HostVirtualNic
	if h.Config.Network != nil {
		nics = h.Config.Network.Vnic
	}
	return kernelNICs(nics, h.Config.VirtualNicManagerInfo), nil
}

// kernelNICs returns the interfaces that have an address, once each. The API lists an
// interface that is tagged for backup traffic a second time, with the tag.
func kernelNICs(nics []types.HostVirtualNic, info *types.HostVirtualNicManagerInfo) []inventory.VMkernelNIC {
	tagged := taggedForBackup(info)
	var out []inventory.VMkernelNIC
	for _, nic := range append(slices.Clone(nics), tagged...) {
		// The device name identifies an interface, such as vmk0.
		device := func(other types.HostVirtualNic) bool { return other.Device == nic.Device }
		known := slices.ContainsFunc(out, func(other inventory.VMkernelNIC) bool { return other.Device == nic.Device })
		if known || nic.Spec.Ip == nil || nic.Spec.Ip.IpAddress == "" {
			continue
		}
		out = append(out, inventory.VMkernelNIC{
			Device: nic.Device, Address: nic.Spec.Ip.IpAddress, Network: nic.Portgroup,
			Backup: slices.ContainsFunc(tagged, device), MTU: int(nic.Spec.Mtu),
		})
	}
	return out
}

// taggedForBackup returns the interfaces that are selected for backup traffic.
func taggedForBackup(info *types.HostVirtualNicManagerInfo) (tagged []types.HostVirtualNic) {
	if info == nil {
		return nil
	}
	for _, net := range info.NetConfig {
		if net.NicType != string(types.HostVirtualNicManagerNicTypeVSphereBackupNFC) {
			continue
		}
		for _, nic := range net.CandidateVnic {
			if slices.Contains(net.SelectedVnic, nic.Key) {
				tagged = append(tagged, nic)
			}
		}
	}
	return tagged
}
