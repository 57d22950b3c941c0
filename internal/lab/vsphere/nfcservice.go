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

// init registers the requests of NfcService, which the public API does not contain, by their names on the
// wire.
func init() {
	for name, request := range map[string]any{
		"RetrieveInternalContent": retrieveInternalContent{}, "NfcGetVmFiles": nfcGetVMFiles{},
		"NfcRandomAccessOpenReadonly": nfcOpenReadonly{}, "NfcGetServerNfcLibVersion": nfcLibVersionRequest{},
	} {
		types.Add(name, reflect.TypeOf(request))
	}
}

type (
	// retrieveInternalContent is the request for the references of internal services.
	retrieveInternalContent struct {
		This types.ManagedObjectReference `xml:"_this"` // service instance
	}
	// nfcGetVMFiles is the request for a ticket for all disks of a VM.
	nfcGetVMFiles struct {
		This types.ManagedObjectReference `xml:"_this"` // NFC service
		VM   types.ManagedObjectReference `xml:"vm"`    // VM to read
	}
	// nfcOpenReadonly is the request for a ticket for one disk of a VM.
	nfcOpenReadonly struct {
		This      types.ManagedObjectReference  `xml:"_this"`                   // NFC service
		VM        types.ManagedObjectReference  `xml:"vm"`                      // VM to read
		DeviceKey int32                         `xml:"diskDeviceKey"`           // device key of the disk
		Host      *types.ManagedObjectReference `xml:"hostForAccess,omitempty"` // host to connect to; ignored
	}
	// nfcLibVersionRequest is the request for the library version of a host.
	nfcLibVersionRequest struct {
		This types.ManagedObjectReference  `xml:"_this"`                   // NFC service
		Host *types.ManagedObjectReference `xml:"hostForAccess,omitempty"` // host; required by a vCenter
	}

	// internalContent contains the references of internal services.
	internalContent struct {
		AgentManager types.ManagedObjectReference `xml:"agentManager"`
		DiskManager  types.ManagedObjectReference `xml:"diskManager"`
		NfcService   types.ManagedObjectReference `xml:"nfcService"` // the service that issues tickets
		ProxyService types.ManagedObjectReference `xml:"proxyService"`
	}
	// internalContentResponse is the response to RetrieveInternalContent.
	internalContentResponse struct {
		Returnval internalContent `xml:"returnval"`
	}
	// internalContentBody is the SOAP body of that response.
	internalContentBody struct {
		// response; nil if the call failed
		Res *internalContentResponse `xml:"urn:vim25 RetrieveInternalContentResponse,omitempty"`
		// fault; nil if the call succeeded
		Fault_ *soap.Fault `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
	}
	// nfcTicketResponse is a response with a ticket.
	nfcTicketResponse struct {
		Returnval types.HostServiceTicket `xml:"returnval"`
	}
	// nfcGetVMFilesBody is the SOAP body of the response to NfcGetVmFiles.
	nfcGetVMFilesBody struct {
		// response; nil if the call failed
		Res *nfcTicketResponse `xml:"urn:vim25 NfcGetVmFilesResponse,omitempty"`
		// fault; nil if the call succeeded
		Fault_ *soap.Fault `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
	}
	// nfcOpenReadonlyBody is the SOAP body of the response to NfcRandomAccessOpenReadonly.
	nfcOpenReadonlyBody struct {
		// response; nil if the call failed
		Res *nfcTicketResponse `xml:"urn:vim25 NfcRandomAccessOpenReadonlyResponse,omitempty"`
		// fault; nil if the call succeeded
		Fault_ *soap.Fault `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
	}
	// nfcLibVersionResponse is a response with a library version.
	nfcLibVersionResponse struct {
		Returnval int32 `xml:"returnval"`
	}
	// nfcLibVersionBody is the SOAP body of that response.
	nfcLibVersionBody struct {
		// response; nil if the call failed
		Res *nfcLibVersionResponse `xml:"urn:vim25 NfcGetServerNfcLibVersionResponse,omitempty"`
		// fault; nil if the call succeeded
		Fault_ *soap.Fault `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
	}
)

// Fault implements soap.HasFault.
func (b *internalContentBody) Fault() *soap.Fault { return b.Fault_ }

// Fault implements soap.HasFault.
func (b *nfcGetVMFilesBody) Fault() *soap.Fault { return b.Fault_ }

// Fault implements soap.HasFault.
func (b *nfcOpenReadonlyBody) Fault() *soap.Fault { return b.Fault_ }

// Fault implements soap.HasFault.
func (b *nfcLibVersionBody) Fault() *soap.Fault { return b.Fault_ }

// A serviceInstance is the simulator's, with an internal content that names the NfcService as hosts do.
// The simulator names an object that neither an ESXi host nor a vCenter has.
type serviceInstance struct {
	*simulator.ServiceInstance
	lab *Lab // emulator, for its kind
}

// RetrieveInternalContent requires no login, as in the simulator.
func (s *serviceInstance) RetrieveInternalContent(*retrieveInternalContent) soap.HasFault {
	ref := func(kind, value string) types.ManagedObjectReference {
		return types.ManagedObjectReference{Type: kind, Value: value}
	}
	return &internalContentBody{Res: &internalContentResponse{Returnval: internalContent{
		AgentManager: ref("AgentManager", "ha-agent-manager"), DiskManager: ref("HostDiskManager", "ha-disk-manager"),
		NfcService: nfcServiceRef(s.lab.cfg.VCenter), ProxyService: ref("ProxyService", "ha-proxy-service"),
	}}}
}

// An nfcService issues tickets for NFC.
type nfcService struct {
	Self types.ManagedObjectReference // reference of the service
	lab  *Lab                         // emulator with the VMs and hosts
}

// Reference implements mo.Reference.
func (s *nfcService) Reference() types.ManagedObjectReference { return s.Self }

// NfcGetVmFiles issues a ticket for all disks of a VM.
func (s *nfcService) NfcGetVmFiles(ctx *simulator.Context, req *nfcGetVMFiles) soap.HasFault {
	ticket, fault := s.makeTicket(ctx, req.VM, 0)
	if fault != nil {
		return &nfcGetVMFilesBody{Fault_: simulator.Fault("", fault)}
	}
	return &nfcGetVMFilesBody{Res: &nfcTicketResponse{Returnval: *ticket}}
}

// NfcRandomAccessOpenReadonly issues a ticket for one disk of a VM.
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

// makeTicket issues a ticket for the host on which a VM runs; key 0 selects all disks.
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

// describeTicket registers a ticket and returns it in the form of a vCenter or an ESXi host. If lie is
// set, it names another certificate.
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

// sha1Of returns the SHA-1 of a certificate in the notation of tickets.
func sha1Of(der []byte) string {
	sum := sha1.Sum(der)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
}
