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

// sshService is the key of the SSH server among a host's services.
const sshService = "TSM-SSH"

// Forbidden reports whether the call that failed with err is not allowed by the licence
// of the host (free ESXi), or by the privileges of the user. The host may still do the
// work if it is requested in another way, such as over SSH.
func Forbidden(err error) bool {
	switch vimFault(err).(type) {
	case *types.RestrictedVersion, *types.NoPermission:
		return true
	}
	return false
}

// SSHRuns reports whether the SSH server of a host runs.
func (s *hostController) SSHRuns(ctx context.Context, host inventory.MoRef) (bool, error) {
	runs, err := s.sshRuns(ctx, host)
	if err != nil {
		return false, fmt.Errorf("look for SSH of host %s: %w", host, classify(err))
	}
	return runs, nil
}

// sshRuns does the work of SSHRuns. A host without the service is fault.Unsupported.
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

// serviceSystem returns the manager object for services of a host.
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

// StartSSHRemedy is the remedy if SSH is off and the licence of the host makes its API read-only.
const StartSSHRemedy = "start SSH on the host: at its console (F2, Troubleshooting Options, Enable SSH), or in its shell: vim-cmd hostsvc/start_ssh"

// StartSSH starts the SSH server of a host. It runs until StopSSH or until the host
// restarts. The start policy of the service is unchanged. A server that runs already is
// no error.
func (s *hostController) StartSSH(ctx context.Context, host inventory.MoRef) error {
	ref, err := s.serviceSystem(ctx, host)
	if err == nil {
		_, err = methods.StartService(ctx, s, &types.StartService{This: ref, Id: sshService})
	}
	// The remedies differ from those of other calls: SSH can be started without the API.
	switch {
	case Restricted(err):
		return fault.New(fault.Denied, "start SSH of host %s: %w", host, err).WithHint("%s", StartSSHRemedy)
	case Forbidden(err):
		return fault.New(fault.Denied, "start SSH of host %s: %w", host, err).
			WithHint("start the service TSM-SSH manually: on the host's console (F2, Troubleshooting Options), or in the host client with a user who may")
	case err != nil:
		return fmt.Errorf("start SSH of host %s: %w", host, classify(err))
	}
	s.cfg.Log.Info("SSH started", "host", host)
	return nil
}

// StopSSH stops the SSH server of a host. Open sessions continue. A server that is
// stopped already is no error.
func (s *hostController) StopSSH(ctx context.Context, host inventory.MoRef) error {
	if err := s.stopSSH(ctx, host); err != nil {
		return fmt.Errorf("stop SSH of host %s: %w", host, classify(err))
	}
	return nil
}

// stopSSH does the work of StopSSH without the context of errors.
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

// hostKeyPath is the path of the public RSA key of a host's SSH server on its web
// server. The documentation ("Upload an SSH Key Using HTTPS PUT" in vSphere Security)
// describes writing only. vifs reads the same path; this is not guaranteed.
const hostKeyPath = "/host/ssh_host_rsa_key_pub"

// maxHostKey limits the size of a public key, in bytes.
const maxHostKey = 16 << 10

// SSHHostKey returns the public key of the host's SSH server in the format of
// authorized_keys. It is as trustworthy as the pinned certificate. The error is
// fault.Unsupported for a vCenter, and for a host that does not return the key.
func (s *fileReader) SSHHostKey(ctx context.Context) ([]byte, error) {
	if s.about.VCenter {
		return nil, fault.New(fault.Unsupported, "a vCenter does not return the SSH keys of its hosts")
	}
	res, err := s.sendRequest(ctx, http.MethodGet, hostKeyPath)
	if err != nil {
		return nil, fmt.Errorf("ask for the SSH host key: %w", classify(err))
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fault.New(fault.Unsupported, "the host does not return its SSH key: %w", &statusError{res.StatusCode})
	}
	return readAtMost(res, maxHostKey)
}
