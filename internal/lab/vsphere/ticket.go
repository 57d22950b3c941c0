package vsphere

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// sessionManager is the simulator's with tickets that are good for something.
type sessionManager struct {
	*simulator.SessionManager
	lab *Lab
}

// AcquireGenericServiceTicket issues a one-time ticket for one URL and method. It is taken
// at every endpoint that serves /folder, as hosts of one vCenter take its tickets.
func (s *sessionManager) AcquireGenericServiceTicket(ctx *simulator.Context, req *types.AcquireGenericServiceTicket) soap.HasFault {
	body := &methods.AcquireGenericServiceTicketBody{}
	spec, ok := req.Spec.(*types.SessionManagerHttpServiceRequestSpec)
	if !ok {
		body.Fault_ = simulator.Fault("", &types.InvalidArgument{InvalidProperty: "spec"})
		return body
	}
	t, err := parseTicketURL(spec.Method, spec.Url)
	if err != nil {
		body.Fault_ = simulator.Fault(err.Error(), &types.InvalidArgument{InvalidProperty: "spec.url"})
		return body
	}
	id := s.lab.listeners.issue(t)
	body.Res = &types.AcquireGenericServiceTicketResponse{Returnval: types.SessionManagerGenericServiceTicket{
		Id: id, HostName: s.lab.main.addr,
	}}
	return body
}
