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
	// createTries is how many VMIDs are tried: others take them between the question and the use.
	createTries = 20

	// diskTries is how often an import is begun that was lost.
	diskTries = 3

	// cleanup is how long removing a half guest may take, beyond the end of what was asked for.
	cleanup = 10 * time.Minute

	// maxSkew is how far the clocks may be apart before it is told.
	maxSkew = 5 * time.Minute
)

// A delivery is one VM on its way into a guest: what both ways have in common. It is not safe for concurrent use.
type delivery struct {
	clients
	platform.Delivery
	machine  Machine
	images   string // contents
	plan     string
	sent     int64 // bytes, of total
	told     int64 // bytes that Progress was told of
	total    int64
	warnings []inventory.Warning
	behind   string // why boot entries were not taken along, for whoever comes after a crash
}

func (w *delivery) receipt(g *found) platform.Receipt {
	return platform.Receipt{
		Place: "proxmox " + g.node, ID: fmt.Sprint(g.vmid), Name: w.machine.Name, Warnings: w.warnings,
	}
}

// done is an error unless the guest, which is complete, was made of these images.
func (w *delivery) done(g *found) error { return g.madeOf(w.VM, w.images) }

// create makes the guest without disks, under a VMID that nobody has.
func (w *delivery) create(ctx context.Context, base []Param, plan string) (*found, error) {
	list, err := w.guests.list(ctx)
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
		params = append(params, Param{"tags", tagList(w.VM, nil)}, Param{"description", description(w.VM, vmid, standing{plan: plan})})
		warned, err := w.api.do(ctx, http.MethodPost, "/nodes/"+w.node+"/qemu", params)
		if err == nil {
			w.note(warned, "made")
			return &found{vmid: vmid, node: w.node, standing: standing{ours: true, plan: plan}}, nil
		}
		if !fault.Is(err, fault.Conflict) || try == createTries {
			return nil, fmt.Errorf("make guest %d: %w", vmid, err)
		}
	}
}

// finish gives the guest its boot order and its tags, and takes the word unfinished off, in one change.
func (w *delivery) finish(ctx context.Context, g *found) error {
	params := []Param{{"description", description(w.VM, g.vmid, standing{images: w.images, behind: w.behind})}}
	if w.machine.Boot != "" {
		params = append(params, Param{"boot", w.machine.Boot})
	}
	change := func(params ...Param) error {
		return w.api.again(ctx, func() error {
			return w.api.change(ctx, http.MethodPut, qemu(g.node, g.vmid)+"/config", params, nil)
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

// abandon removes what there is of the guest, and of its uploads or volumes.
func (w *delivery) abandon(ctx context.Context, direct bool) error {
	if err := withdraw(ctx, w.clients, direct, w.VM); err != nil {
		return fmt.Errorf("remove the half guest: %w", err)
	}
	return nil
}

// progress tells of n bytes more; n is negative where an upload begins anew, which is not told.
func (w *delivery) progress(n int64) {
	w.sent += n
	if w.Progress != nil && w.sent > w.told {
		w.told = w.sent
		w.Progress(w.sent, w.total)
	}
}

// note keeps that a task had warnings. Its log has them.
func (w *delivery) note(warned bool, done string) {
	if warned {
		w.warnings = append(w.warnings, inventory.Warning{
			Code: "proxmox-task", Text: "the node warned when the guest was " + done, Remedy: "read the warnings in the node's task list",
		})
	}
}

// noteClock warns of clocks that are apart.
func (w *delivery) noteClock() {
	if apart := w.api.apart(); apart != nil {
		w.warnings = append(w.warnings, *apart)
	}
}
