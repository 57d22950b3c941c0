package proxmox

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/platform"
)

const (
	// createTries is the maximum number of VMIDs that are tried. Other clients can use a VMID before
	// decamp does.
	createTries = 20

	// diskTries is the maximum number of attempts of an import whose answer is lost.
	diskTries = 3

	// cleanupTimeout limits the cleanup after a failed delivery, which also runs after a cancellation.
	cleanupTimeout = 10 * time.Minute

	// maxSkew is the difference of the clocks above which a warning is added.
	maxSkew = 5 * time.Minute
)

// delivery is the common part of an import and a delivery over SSH. It is not safe for concurrent use.
type delivery struct {
	clients
	platform.Delivery
	machine        Machine             // definition of the guest
	images         string              // imagesHash of the images
	plan           string              // identifies an unfinished guest in its description
	sent           int64               // bytes sent so far
	reported       int64               // bytes last reported to Progress
	total          int64               // bytes to send
	warnings       []inventory.Warning // differences from the source VM
	variablesError string              // why the EFI variables were not carried over; recorded in the guest's description
}

// newReceipt returns the receipt for a finished guest.
func (w *delivery) newReceipt(g *found) platform.Receipt {
	return platform.Receipt{
		Platform: "proxmox " + g.node, ID: fmt.Sprint(g.vmid), Name: w.machine.Name, Warnings: w.warnings,
	}
}

// checkImages returns fault.Conflict if the finished guest contains other images.
func (w *delivery) checkImages(g *found) error { return g.madeOf(w.VM, w.images) }

// createGuest creates the guest without disks, marked as unfinished, with a free VMID. If another
// client takes the VMID
// first, it tries again with the next one, up to createTries times.
func (w *delivery) createGuest(ctx context.Context, base []Param, plan string) (*found, error) {
	list, err := w.guests.listGuests(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkName(w.VM, w.machine.Name, list); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		vmid, err := w.guests.nextID(ctx)
		if err != nil {
			return nil, err
		}
		params := append([]Param{{"vmid", fmt.Sprint(vmid)}}, base...)
		params = append(params, Param{"tags", tagList(w.VM, nil)}, Param{"description", guestDescription(w.VM, vmid, guestStatus{plan: plan})})
		warned, err := w.api.runTask(ctx, http.MethodPost, "/nodes/"+w.node+"/qemu", params)
		if err == nil {
			w.noteTask(warned, "made")
			return &found{vmid: vmid, node: w.node, guestStatus: guestStatus{ours: true, plan: plan}}, nil
		}
		if !fault.Is(err, fault.Conflict) || try == createTries {
			return nil, fmt.Errorf("create guest %d: %w", vmid, err)
		}
	}
}

// finishGuest sets boot order and tags, and marks the guest as complete, in one request. If the token
// may not set the
// VM's tags, it adds a warning.
func (w *delivery) finishGuest(ctx context.Context, g *found) error {
	params := []Param{{"description", guestDescription(w.VM, g.vmid, guestStatus{images: w.images, variablesError: w.variablesError})}}
	if w.machine.Boot != "" {
		params = append(params, Param{"boot", w.machine.Boot})
	}
	change := func(params ...Param) error {
		return w.api.retryTemporary(ctx, func() error {
			return w.api.sendParams(ctx, http.MethodPut, guestPath(g.node, g.vmid)+"/config", params, nil)
		})
	}
	tags := tagList(w.VM, vmTags(w.VM))
	err := change(append(params, Param{"tags", tags})...)
	if fault.Is(err, fault.Denied) && len(w.VM.Tags) > 0 {
		w.warnings = append(w.warnings, tagsDenied(g.vmid, tags, err))
		err = change(params...)
	}
	if err != nil {
		return fmt.Errorf("finish guest %d: %w", g.vmid, err)
	}
	return nil
}

// removeGuest removes the unfinished guest and its uploads or volumes. direct reports whether volumes
// are written over SSH.
func (w *delivery) removeGuest(ctx context.Context, direct bool) error {
	if err := withdrawGuest(ctx, w.clients, direct, w.VM); err != nil {
		return fmt.Errorf("remove the unfinished guest: %w", err)
	}
	return nil
}

// addProgress reports n more bytes. n is negative if an upload is repeated; then nothing is reported
// until the old value
// is exceeded.
func (w *delivery) addProgress(n int64) {
	w.sent += n
	if w.Progress != nil && w.sent > w.reported {
		w.reported = w.sent
		w.Progress(w.sent, w.total)
	}
}

// noteTask adds a warning if a task ended with warnings. done completes the sentence "the node reported warnings
// when the guest was".
func (w *delivery) noteTask(warned bool, done string) {
	if warned {
		w.warnings = append(w.warnings, inventory.Warning{
			Code: "proxmox-task", Text: "the node reported warnings when the guest was " + done, Remedy: "read the warnings in the node's task list",
		})
	}
}

// noteClock adds a warning if the clocks differ.
func (w *delivery) noteClock() {
	if apart := w.api.clockWarning(); apart != nil {
		w.warnings = append(w.warnings, *apart)
	}
}
