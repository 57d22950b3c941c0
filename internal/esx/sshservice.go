package esx

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// sshService is the key of a host's SSH server among its services.
const sshService = "TSM-SSH"

// Forbidden reports whether err is a call that the host's licence (free ESXi) or the user's
// privileges do not allow: the host can do it all the same, asked another way.
func Forbidden(err error) bool {
	switch vimFault(err).(type) {
	case *types.RestrictedVersion, *types.NoPermission:
		return true
	}
	return false
}

// SSHRuns reports whether a host's SSH server runs.
func (s *hostController) SSHRuns(ctx context.Context, host inventory.MoRef) (bool, error) {
	runs, err := s.sshRuns(ctx, host)
	if err != nil {
		return false, fmt.Errorf("look for SSH of host %s: %w", host, classify(err))
	}
	return runs, nil
}

func (s *hostController) sshRuns(ctx context.Context, host inventory.MoRef) (bool, error) {
	ref, err := s.serviceSystem(ctx, host)
	if err != nil {
		return false, err
	}
	var system mo.HostServiceSystem
	if err := s.readProperties(ctx, ref, &system, "serviceInfo.service"); err != nil {
		return false, err
	}
	for _, service := range system.ServiceInfo.Service {
		if service.Key == sshService {
			return service.Running, nil
		}
	}
	return false, fault.New(fault.Unsupported, "it has no service %s", sshService)
}

func (s *hostController) serviceSystem(ctx context.Context, host inventory.MoRef) (types.ManagedObjectReference, error) {
	var h mo.HostSystem
	if err := s.readProperties(ctx, moRef("HostSystem", host), &h, "configManager.serviceSystem"); err != nil {
		return types.ManagedObjectReference{}, err
	}
	if h.ConfigManager.ServiceSystem == nil {
		return types.ManagedObjectReference{}, errors.New("the host has no service system")
	}
	return *h.ConfigManager.ServiceSystem, nil
}

// StartSSH starts a host's SSH server until StopSSH or the host's next start; whether it
// starts with the host is left as it is. One that runs is no error.
func (s *hostController) StartSSH(ctx context.Context, host inventory.MoRef) error {
	ref, err := s.serviceSystem(ctx, host)
	if err == nil {
		_, err = methods.StartService(ctx, s, &types.StartService{This: ref, Id: sshService})
	}
	if Forbidden(err) {
		return fault.New(fault.Denied, "start SSH of host %s: %w", host, err).
			WithHint("start the service TSM-SSH by hand: on the host's console (F2, Troubleshooting Options), or in the host client with a user who may")
	}
	if err != nil {
		return fmt.Errorf("start SSH of host %s: %w", host, classify(err))
	}
	s.cfg.Log.Info("SSH started", "host", host)
	return nil
}

// StopSSH stops a host's SSH server. Sessions that are open go on; one that does not run is
// no error.
func (s *hostController) StopSSH(ctx context.Context, host inventory.MoRef) error {
	if err := s.stopSSH(ctx, host); err != nil {
		return fmt.Errorf("stop SSH of host %s: %w", host, classify(err))
	}
	return nil
}

func (s *hostController) stopSSH(ctx context.Context, host inventory.MoRef) error {
	runs, err := s.sshRuns(ctx, host)
	if err != nil || !runs {
		return err
	}
	ref, err := s.serviceSystem(ctx, host)
	if err != nil {
		return err
	}
	if _, err := methods.StopService(ctx, s, &types.StopService{This: ref, Id: sshService}); err != nil {
		return err
	}
	s.cfg.Log.Info("SSH stopped", "host", host)
	return nil
}

// hostKeyPath is where a host keeps the public part of its RSA key for the API's users. It
// is documented as a place to put keys (vSphere Security, "Upload an SSH Key Using HTTPS
// PUT"); that it can be read there is what vifs does, and not promised.
const hostKeyPath = "/host/ssh_host_rsa_key_pub"

// maxHostKey bounds a public key, in bytes.
const maxHostKey = 16 << 10

// SSHHostKey returns the public key of the host's SSH server as the API tells it, which is
// to be believed as much as the pinned certificate: authorized_keys format. A server that
// does not tell, or a vCenter, is fault.Unsupported.
func (s *fileReader) SSHHostKey(ctx context.Context) ([]byte, error) {
	if s.about.VCenter {
		return nil, fault.New(fault.Unsupported, "a vCenter does not tell its hosts' SSH keys")
	}
	res, err := s.sendRequest(ctx, http.MethodGet, hostKeyPath)
	if err != nil {
		return nil, fmt.Errorf("ask for the SSH host key: %w", classify(err))
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fault.New(fault.Unsupported, "the host does not tell its SSH key: %w", &statusError{res.StatusCode})
	}
	return readAtMost(res, maxHostKey)
}
