// Package vimcmd creates snapshots and changes the power state of VMs on hosts whose
// API is read-only.
//
// With the licence of the free hypervisor, the API changes nothing (RestrictedVersion).
// The host's own vim-cmd, over SSH, calls the same agent without this restriction. This
// package requests changes over SSH, and reads their results with the API. It finds
// snapshots by their names in the VM's tree, because the output of vim-cmd is
// undocumented.
//
// # Guarantees
//
// No VM is changed before vim-cmd has the same number for its configuration file as the
// API. A snapshot is removed by its number only if the API and vim-cmd have the same
// name for it, and only if it has no children: their fate is undocumented. A vim-cmd
// continues if the connection breaks or this process dies. The next request for the VM
// waits for it.
//
// Delta disks are not consolidated: the only command of vim-cmd for it also removes the
// snapshots of other programs.
package vimcmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// Host is an ESXi host that is read with its API and changed with vim-cmd. Its methods
// may be called concurrently for different VMs.
type Host struct {
	Session *esx.Session // login to the API of the host

	// Open returns the SSH login to a host. It keeps the login for later calls.
	Open func(ctx context.Context, host inventory.MoRef) (*shell.Shell, error)

	mu      sync.Mutex                          // protects checked
	checked map[inventory.MoRef]inventory.MoRef // hosts of the VMs whose numbers were compared; nil before the first
}

// Ready returns nil if a VM can be changed: SSH is on and accepts the login, and
// vim-cmd knows the VM.
func (h *Host) Ready(ctx context.Context, vm inventory.MoRef) error {
	_, err := h.shellOf(ctx, vm)
	return err
}

// shellOf returns the SSH login to the host of a VM. It checks the VM's number on the
// first call.
func (h *Host) shellOf(ctx context.Context, vm inventory.MoRef) (*shell.Shell, error) {
	h.mu.Lock()
	host, sure := h.checked[vm]
	h.mu.Unlock()
	if sure {
		return h.Open(ctx, host)
	}
	return h.shellAfterCheck(ctx, vm)
}

// shellAfterCheck logs in, and compares the VM's number with vim-cmd's.
func (h *Host) shellAfterCheck(ctx context.Context, vm inventory.MoRef) (*shell.Shell, error) {
	if err := checkVersion(h.Session.About()); err != nil {
		return nil, err
	}
	// The API provides the host and the configuration file of the VM.
	v, err := h.Session.BareVM(ctx, vm)
	if err != nil {
		return nil, err
	}
	sh, err := h.Open(ctx, v.Host)
	if err != nil {
		return nil, err
	}
	if err := sh.HasVM(ctx, vm, v.VMX); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.checked == nil {
		h.checked = map[inventory.MoRef]inventory.MoRef{}
	}
	h.checked[vm] = v.Host
	return sh, nil
}

// oldest is the first major version whose snapshot.remove has the number of a snapshot
// as parameter. Earlier versions interpret the same words differently.
const oldest = 5

// checkVersion returns fault.Unsupported for servers whose vim-cmd interprets the
// commands differently, and for a vCenter, whose references of VMs differ from the
// numbers on the hosts.
func checkVersion(about inventory.About) error {
	major, _, _ := strings.Cut(about.Version, ".")
	n, err := strconv.Atoi(major)
	switch {
	case about.VCenter:
		return fault.New(fault.Unsupported, "a vCenter has other numbers for VMs than vim-cmd on their hosts").WithHint("log in to the host itself: esxi://")
	case err != nil || n < oldest:
		return fault.New(fault.Unsupported, "vim-cmd of ESXi %s uses snapshot numbers in another way", about.Version).WithHint("upgrade the host to ESXi %d or later", oldest)
	}
	return nil
}

// PowerOff is esx.Session.PowerOff.
func (h *Host) PowerOff(ctx context.Context, vm inventory.MoRef, o esx.PowerOffOptions) error {
	o.By = h
	return h.Session.PowerOff(ctx, vm, o)
}

// PowerOn is esx.Session.PowerOn.
func (h *Host) PowerOn(ctx context.Context, vm inventory.MoRef) error {
	return h.Session.PowerOnBy(ctx, vm, h)
}

var _ esx.Switch = (*Host)(nil)

// ShutDown is part of esx.Switch.
func (h *Host) ShutDown(ctx context.Context, vm inventory.MoRef) error {
	return h.onShell(ctx, vm, (*shell.Shell).ShutDown)
}

// CutPower is part of esx.Switch.
func (h *Host) CutPower(ctx context.Context, vm inventory.MoRef) error {
	return h.onShell(ctx, vm, (*shell.Shell).CutPower)
}

// Start is part of esx.Switch.
func (h *Host) Start(ctx context.Context, vm inventory.MoRef) error {
	return h.onShell(ctx, vm, (*shell.Shell).Start)
}

// onShell calls do with the SSH login to the host of a VM.
func (h *Host) onShell(ctx context.Context, vm inventory.MoRef, do func(*shell.Shell, context.Context, inventory.MoRef) error) error {
	sh, err := h.shellOf(ctx, vm)
	if err == nil {
		err = do(sh, ctx, vm)
	}
	if err != nil {
		return fmt.Errorf("by SSH: %w", err)
	}
	return nil
}
