package vsphere

import (
	"crypto/sha1"
	"encoding/pem"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// The calls of NfcService, which the public API leaves out. Types are registered by the
// names that are on the wire.
func init() {
	for name, request := range map[string]any{
		"RetrieveInternalContent": retrieveInternalContent{}, "NfcGetVmFiles": nfcGetVMFiles{},
		"NfcRandomAccessOpenReadonly": nfcOpenReadonly{}, "NfcGetServerNfcLibVersion": nfcLibVersionRequest{},
	} {
		types.Add(name, reflect.TypeOf(request))
	}
}

type (
	retrieveInternalContent struct {
		This types.ManagedObjectReference `xml:"_this"`
	}
	nfcGetVMFiles struct {
		This types.ManagedObjectReference `xml:"_this"`
		VM   types.ManagedObjectReference `xml:"vm"`
	}
	nfcOpenReadonly struct {
		This      types.ManagedObjectReference  `xml:"_this"`
		VM        types.ManagedObjectReference  `xml:"vm"`
		DeviceKey int32                         `xml:"diskDeviceKey"`
		Host      *types.ManagedObjectReference `xml:"hostForAccess,omitempty"`
	}
	nfcLibVersionRequest struct {
		This types.ManagedObjectReference  `xml:"_this"`
		Host *types.ManagedObjectReference `xml:"hostForAccess,omitempty"`
	}

	internalContent struct {
		AgentManager types.ManagedObjectReference `xml:"agentManager"`
		DiskManager  types.ManagedObjectReference `xml:"diskManager"`
		NfcService   types.ManagedObjectReference `xml:"nfcService"`
		ProxyService types.ManagedObjectReference `xml:"proxyService"`
	}
	internalContentResponse struct {
		Returnval internalContent `xml:"returnval"`
	}
	internalContentBody struct {
		Res    *internalContentResponse `xml:"urn:vim25 RetrieveInternalContentResponse,omitempty"`
		Fault_ *soap.Fault              `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
	}
	nfcTicketResponse struct {
		Returnval types.HostServiceTicket `xml:"returnval"`
	}
	nfcGetVMFilesBody struct {
		Res    *nfcTicketResponse `xml:"urn:vim25 NfcGetVmFilesResponse,omitempty"`
		Fault_ *soap.Fault        `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
	}
	nfcOpenReadonlyBody struct {
		Res    *nfcTicketResponse `xml:"urn:vim25 NfcRandomAccessOpenReadonlyResponse,omitempty"`
		Fault_ *soap.Fault        `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
	}
	nfcLibVersionResponse struct {
		Returnval int32 `xml:"returnval"`
	}
	nfcLibVersionBody struct {
		Res    *nfcLibVersionResponse `xml:"urn:vim25 NfcGetServerNfcLibVersionResponse,omitempty"`
		Fault_ *soap.Fault            `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
	}
)

// Fault is part of soap.HasFault.
func (b *internalContentBody) Fault() *soap.Fault { return b.Fault_ }

// Fault is part of soap.HasFault.
func (b *nfcGetVMFilesBody) Fault() *soap.Fault { return b.Fault_ }

// Fault is part of soap.HasFault.
func (b *nfcOpenReadonlyBody) Fault() *soap.Fault { return b.Fault_ }

// Fault is part of soap.HasFault.
func (b *nfcLibVersionBody) Fault() *soap.Fault { return b.Fault_ }

// serviceInstance is the simulator's with an internal content that names the NfcService as
// hosts do. The simulator's own names an object that neither an ESXi nor a vCenter has.
type serviceInstance struct {
	*simulator.ServiceInstance
	lab *Lab
}

// RetrieveInternalContent needs no login, as in the simulator.
func (s *serviceInstance) RetrieveInternalContent(*retrieveInternalContent) soap.HasFault {
	ref := func(kind, value string) types.ManagedObjectReference {
		return types.ManagedObjectReference{Type: kind, Value: value}
	}
	return &internalContentBody{Res: &internalContentResponse{Returnval: internalContent{
		AgentManager: ref("AgentManager", "ha-agent-manager"), DiskManager: ref("HostDiskManager", "ha-disk-manager"),
		NfcService: nfcServiceRef(s.lab.cfg.VCenter), ProxyService: ref("ProxyService", "ha-proxy-service"),
	}}}
}

// nfcService hands out tickets.
type nfcService struct {
	Self types.ManagedObjectReference
	lab  *Lab
}

// Reference is part of mo.Reference.
func (s *nfcService) Reference() types.ManagedObjectReference { return s.Self }

// NfcGetVmFiles gives a ticket for all disks of a VM.
func (s *nfcService) NfcGetVmFiles(ctx *simulator.Context, req *nfcGetVMFiles) soap.HasFault {
	ticket, fault := s.makeTicket(ctx, req.VM, 0)
	if fault != nil {
		return &nfcGetVMFilesBody{Fault_: simulator.Fault("", fault)}
	}
	return &nfcGetVMFilesBody{Res: &nfcTicketResponse{Returnval: *ticket}}
}

// NfcRandomAccessOpenReadonly gives a ticket for one disk of a VM.
func (s *nfcService) NfcRandomAccessOpenReadonly(ctx *simulator.Context, req *nfcOpenReadonly) soap.HasFault {
	ticket, fault := s.makeTicket(ctx, req.VM, req.DeviceKey)
	if fault != nil {
		return &nfcOpenReadonlyBody{Fault_: simulator.Fault("", fault)}
	}
	return &nfcOpenReadonlyBody{Res: &nfcTicketResponse{Returnval: *ticket}}
}

// NfcGetServerNfcLibVersion returns the version of a host's NFC library. A vCenter requires the host;
// 6.0 does not have the method.
func (s *nfcService) NfcGetServerNfcLibVersion(_ *simulator.Context, req *nfcLibVersionRequest) soap.HasFault {
	body := &nfcLibVersionBody{}
	switch {
	case strings.HasPrefix(s.lab.cfg.Version, "6.0"):
		body.Fault_ = simulator.Fault("Unable to resolve WSDL method name NfcGetServerNfcLibVersion", &types.InvalidRequest{})
	case s.lab.cfg.VCenter && req.Host == nil:
		body.Fault_ = simulator.Fault("", &types.InvalidArgument{InvalidProperty: "hostForAccess"})
	case req.Host != nil && s.lab.nfcHosts.findHost(*req.Host) == nil:
		body.Fault_ = simulator.Fault("", &types.ManagedObjectNotFound{Obj: *req.Host})
	default:
		body.Res = &nfcLibVersionResponse{Returnval: int32(s.lab.nfcHosts.rules.Load().LibVersion)}
		if strings.HasPrefix(s.lab.cfg.Version, "6.5") {
			body.Res.Returnval = 0
		}
	}
	return body
}

// makeTicket makes a ticket for the host a VM runs on; key 0 is every disk.
func (s *nfcService) makeTicket(ctx *simulator.Context, ref types.ManagedObjectReference, key int32) (*types.HostServiceTicket, types.BaseMethodFault) {
	vm, ok := ctx.Map.Get(ref).(*simulator.VirtualMachine)
	if !ok {
		return nil, &types.ManagedObjectNotFound{Obj: ref}
	}
	m := s.lab.machines[ref]
	if m == nil || vm.Runtime.Host == nil {
		return nil, &types.InvalidArgument{InvalidProperty: "vm"}
	}
	t := nfcTicket{machine: m, host: s.lab.nfcHosts.findHost(*vm.Runtime.Host), service: nfcServiceESXi}
	if t.disk = m.findDisk(key); t.disk == nil && key != 0 {
		return nil, &types.InvalidArgument{InvalidProperty: "diskDeviceKey"}
	}
	f := s.lab.faults.takeTicket(m.spec.Name)
	if f.isKind(FaultNFCTicket) {
		return nil, &types.NoPermission{Object: &ref, PrivilegeId: "VirtualMachine.Provisioning.GetVmFiles"}
	}
	return s.describeTicket(t, f.isKind(FaultNFCThumbprint))
}

// describeTicket writes the ticket as a vCenter or an ESXi does. A lie names another certificate.
func (s *nfcService) describeTicket(t nfcTicket, lie bool) (*types.HostServiceTicket, types.BaseMethodFault) {
	host, port, err := net.SplitHostPort(t.host.addr)
	number, portErr := strconv.Atoi(port)
	if err != nil || portErr != nil {
		return nil, &types.SystemError{Reason: fmt.Sprintf("NFC address %q", t.host.addr)}
	}
	ticket := &types.HostServiceTicket{Port: int32(number), Service: nfcServiceESXi, ServiceVersion: nfcTicketVersion}
	if s.lab.cfg.VCenter {
		t.service = nfcServiceVPXA
		ticket.Host, ticket.Service = host, nfcServiceVPXA
	}
	der := t.host.tlsCertificate().pair.Certificate[0]
	if major, _, _ := strings.Cut(s.lab.cfg.Version, "."); len(major) > 1 || major >= "9" {
		ticket.SslCertificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	} else {
		ticket.SslThumbprint = sha1Of(der)
	}
	if lie {
		ticket.SslCertificate, ticket.SslThumbprint = "", sha1Of([]byte("another certificate"))
	}
	ticket.SessionId = s.lab.nfcHosts.issueTicket(t)
	return ticket, nil
}

// sha1Of is how tickets name a certificate.
func sha1Of(der []byte) string {
	sum := sha1.Sum(der)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
}
