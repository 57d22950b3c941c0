// Package vimcmd freezes and switches VMs of a host whose API only reads.
//
// The licence of the free hypervisor lets the API change nothing (RestrictedVersion); the
// host's own vim-cmd, over SSH, asks the same agent from within and is not stopped by it. So
// what is changed is asked for by SSH, and what there is, is read by the API: snapshots are
// found by their names in the VM's tree and not in what vim-cmd prints, whose words are
// documented nowhere.
//
// Promises: nothing is done to a VM before vim-cmd was seen to have the same number for its
// configuration file as the API. A snapshot is removed by its number only if it has the name
// it was asked for by, in the API and in what vim-cmd lists, and nothing was taken on top of
// it: what becomes of that is not documented. What vim-cmd was told goes on if the connection
// breaks or this process dies, and is waited for before anything else is told.
//
// Not promised: consolidation. vim-cmd has no command for it but one that removes the
// snapshots of others, too.
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

// Host is an ESXi host that is read by its API and changed by vim-cmd. Its methods may be
// called concurrently for different VMs.
type Host struct {
	Session *esx.Session

	// Open gives the login to a host by SSH, and keeps it for the next who asks.
	Open func(ctx context.Context, host inventory.MoRef) (*shell.Shell, error)

	mu      sync.Mutex
	checked map[inventory.MoRef]inventory.MoRef // hosts of VMs whose numbers were compared
}

// Ready makes sure that a VM can be changed: SSH is on and takes our login, and vim-cmd
// there knows the VM.
func (h *Host) Ready(ctx context.Context, vm inventory.MoRef) error {
	_, err := h.shellOf(ctx, vm)
	return err
}

// shellOf is the login to the host of a VM.
func (h *Host) shellOf(ctx context.Context, vm inventory.MoRef) (*shell.Shell, error) {
	h.mu.Lock()
	host, sure := h.checked[vm]
	h.mu.Unlock()
	if sure {
		return h.Open(ctx, host)
	}
	return h.shellAfterCheck(ctx, vm)
}

// shellAfterCheck logs in and compares the VM's number.
func (h *Host) shellAfterCheck(ctx context.Context, vm inventory.MoRef) (*shell.Shell, error) {
	if err := checkVersion(h.Session.About()); err != nil {
		return nil, err
	}
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

// oldest is the first version whose snapshot.remove takes a snapshot's number; before, the
// same words meant something else.
const oldest = 5

// checkVersion refuses servers whose vim-cmd means something else by our words. A vCenter has
// other references for VMs than the numbers its hosts have.
func checkVersion(about inventory.About) error {
	major, _, _ := strings.Cut(about.Version, ".")
	n, err := strconv.Atoi(major)
	switch {
	case about.VCenter:
		return fault.New(fault.Unsupported, "a vCenter has other numbers for VMs than vim-cmd on their hosts").WithHint("log in to the host itself: esxi://")
	case err != nil || n < oldest:
		return fault.New(fault.Unsupported, "vim-cmd of ESXi %s means something else by a snapshot's number", about.Version).WithHint("upgrade the host to ESXi %d or later", oldest)
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
