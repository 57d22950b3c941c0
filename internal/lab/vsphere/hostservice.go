package vsphere

import (
	"fmt"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// The emulated services of a host.
const (
	serviceShell = "TSM"     // key of the local shell
	serviceSSH   = "TSM-SSH" // key of SSH
)

// servicePolicies are the start policies of a service.
var servicePolicies = []string{"on", "automatic", "off"}

// A serviceSystem is a host's HostServiceSystem, which the simulator lacks. Both services are off until
// a client starts them, except with SSH.Enabled.
type serviceSystem struct {
	mo.HostServiceSystem
	lab  *Lab       // emulator of the host
	host *shellHost // host whose SSH server it controls

	mu sync.Mutex // serializes start and stop
}

// addServices creates the service system of a host.
func (b *builder) addServices(h *simulator.HostSystem) error {
	host, err := b.lab.newShellHost(h)
	if err != nil {
		return err
	}
	policy := "off"
	if b.lab.cfg.SSH.Enabled {
		policy = "on"
	}
	s := &serviceSystem{lab: b.lab, host: host}
	s.ServiceInfo.Service = []types.HostService{
		{Key: serviceShell, Label: "ESXi Shell", Policy: "off"},
		{Key: serviceSSH, Label: "SSH", Policy: policy, Ruleset: []string{"sshServer"}},
	}
	s.Self = types.ManagedObjectReference{Type: "HostServiceSystem", Value: "serviceSystem-" + h.Self.Value}
	host.services = s
	b.reg.Put(s)
	b.ctx.WithLock(h, func() { h.ConfigManager.ServiceSystem = &s.Self })
	if b.lab.cfg.SSH.Enabled {
		return s.startService(b.ctx, serviceSSH)
	}
	return nil
}

// StartService starts a service. A running service is no error.
func (s *serviceSystem) StartService(ctx *simulator.Context, req *types.StartService) soap.HasFault {
	body := &methods.StartServiceBody{}
	if body.Fault_ = s.serviceFault(ctx, req.Id, s.startService); body.Fault_ == nil {
		body.Res = &types.StartServiceResponse{}
	}
	return body
}

// StopService stops a service. Open SSH sessions continue.
func (s *serviceSystem) StopService(ctx *simulator.Context, req *types.StopService) soap.HasFault {
	body := &methods.StopServiceBody{}
	if body.Fault_ = s.serviceFault(ctx, req.Id, s.stopService); body.Fault_ == nil {
		body.Res = &types.StopServiceResponse{}
	}
	return body
}

// RestartService stops and starts a service.
func (s *serviceSystem) RestartService(ctx *simulator.Context, req *types.RestartService) soap.HasFault {
	body := &methods.RestartServiceBody{}
	restart := func(ctx *simulator.Context, id string) error {
		if err := s.stopService(ctx, id); err != nil {
			return err
		}
		return s.startService(ctx, id)
	}
	if body.Fault_ = s.serviceFault(ctx, req.Id, restart); body.Fault_ == nil {
		body.Res = &types.RestartServiceResponse{}
	}
	return body
}

// UpdateServicePolicy sets whether a service starts with the host.
func (s *serviceSystem) UpdateServicePolicy(ctx *simulator.Context, req *types.UpdateServicePolicy) soap.HasFault {
	body := &methods.UpdateServicePolicyBody{}
	if oneOf("policy", req.Policy, servicePolicies) != nil {
		body.Fault_ = simulator.Fault("", &types.InvalidArgument{InvalidProperty: "policy"})
		return body
	}
	set := func(ctx *simulator.Context, id string) error {
		s.changeService(ctx, id, func(v *types.HostService) { v.Policy = req.Policy })
		return nil
	}
	if body.Fault_ = s.serviceFault(ctx, req.Id, set); body.Fault_ == nil {
		body.Res = &types.UpdateServicePolicyResponse{}
	}
	return body
}

// RefreshServices has no effect.
func (s *serviceSystem) RefreshServices(*simulator.Context, *types.RefreshServices) soap.HasFault {
	return &methods.RefreshServicesBody{Res: &types.RefreshServicesResponse{}}
}

// serviceFault runs do for a service and returns its error as a fault.
func (s *serviceSystem) serviceFault(ctx *simulator.Context, id string, do func(*simulator.Context, string) error) *soap.Fault {
	if id != serviceShell && id != serviceSSH {
		return simulator.Fault("no service "+id, &types.NotFound{})
	}
	if err := do(ctx, id); err != nil {
		return simulator.Fault(err.Error(), &types.HostConfigFault{})
	}
	return nil
}

// startService starts a service and marks it as running.
func (s *serviceSystem) startService(ctx *simulator.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == serviceSSH {
		if err := s.host.startListening(); err != nil {
			return fmt.Errorf("start SSH: %w", err)
		}
	}
	s.changeService(ctx, id, func(v *types.HostService) { v.Running = true })
	return nil
}

// stopService stops a service and marks it as stopped.
func (s *serviceSystem) stopService(ctx *simulator.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == serviceSSH {
		if err := s.host.stopListening(); err != nil {
			return fmt.Errorf("stop SSH: %w", err)
		}
	}
	s.changeService(ctx, id, func(v *types.HostService) { v.Running = false })
	return nil
}

// changeService modifies one service. Readers see the list before or after the change. ctx is the
// caller's context, which may hold the lock of s.
func (s *serviceSystem) changeService(ctx *simulator.Context, id string, edit func(*types.HostService)) {
	next := append([]types.HostService(nil), s.ServiceInfo.Service...)
	for i := range next {
		if next[i].Key == id {
			edit(&next[i])
		}
	}
	s.lab.model.Map().AtomicUpdate(ctx, s, []types.PropertyChange{{Name: "serviceInfo.service", Val: next}})
}
