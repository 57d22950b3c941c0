package proxmox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// found is a guest that was made of a VM.
type found struct {
	standing
	vmid int
	node string // which need not be where it was made
}

// madeOf is an error unless the guest, which is complete, was made of vm's images with these contents.
func (g *found) madeOf(vm *inventory.VM, images string) error {
	if g.images == images {
		return nil
	}
	return fault.New(fault.Conflict, "guest %d was made of an earlier copy of VM %s", g.vmid, vm.Name).
		WithHint("if it is not wanted any more: qm destroy %d --purge, and again", g.vmid)
}

// config returns a guest's options. Numbers come as text.
func (p *Place) config(ctx context.Context, node string, vmid int) (map[string]string, error) {
	var raw map[string]any
	if err := p.api.get(ctx, qemu(node, vmid)+"/config", nil, &raw); err != nil {
		return nil, err
	}
	config := map[string]string{}
	for k, v := range raw {
		config[k] = fmt.Sprint(v)
	}
	return config, nil
}

// find returns the guest that was made of vm, nil if there is none. A guest that is being made
// shows neither tag nor description, therefore it waits for those of ours; this takes seconds, as
// guests are made without disks.
func (p *Place) find(ctx context.Context, vm *inventory.VM) (*found, error) {
	if err := p.api.settle(ctx, p.node, url.Values{"typefilter": {"qmcreate"}}); err != nil {
		return nil, err
	}
	list, err := p.guests(ctx)
	if err != nil {
		return nil, err
	}
	var ours []found
	for _, r := range list {
		if r.Type != "qemu" || !r.tagged(ownTag(vm)) {
			continue
		}
		config, err := p.config(ctx, r.Node, r.VMID)
		if fault.Is(err, fault.NotFound) { // gone since it was listed
			continue
		}
		if err != nil {
			return nil, err
		}
		if s := read(config["description"], vm, r.VMID); s.ours {
			ours = append(ours, found{standing: s, vmid: r.VMID, node: r.Node})
		}
	}
	return one(vm, ours)
}

// one refuses to choose between several.
func one(vm *inventory.VM, ours []found) (*found, error) {
	switch len(ours) {
	case 0:
		return nil, nil
	case 1:
		return &ours[0], nil
	}
	var ids []string
	for _, g := range ours {
		ids = append(ids, fmt.Sprint(g.vmid))
	}
	return nil, fault.New(fault.Conflict, "guests %s were all made of VM %s", strings.Join(ids, ", "), vm.Name).
		WithHint("look which of them is wanted, and remove the tag %s from the others: qm set VMID --tags ''", ownTag(vm))
}

// Withdraw removes the guest that was made of vm, and what was uploaded for it, or
// the volumes that were filled.
func (p *Place) Withdraw(ctx context.Context, vm *inventory.VM) error {
	g, err := p.find(ctx, vm)
	if err == nil && g != nil {
		err = p.destroy(ctx, g)
	}
	if p.direct() || g != nil && g.direct() {
		err = errors.Join(err, p.removeVolumes(ctx, vm))
	}
	if p.direct() {
		return err
	}
	return errors.Join(err, p.settleUploads(ctx, vm), p.removeUploads(ctx, vm))
}

// destroy removes a guest whose mark was read, with the volumes that it names. Volumes that only
// have its VMID in their names may be of another guest that had the number before, and stay.
func (p *Place) destroy(ctx context.Context, g *found) error {
	if err := p.api.halt(ctx, g.node, g.vmid); err != nil {
		return err
	}
	_, err := p.api.do(ctx, http.MethodDelete, qemu(g.node, g.vmid), []Param{{"purge", "1"}})
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case fault.Is(err, fault.Conflict):
		return fault.New(fault.Conflict, "guest %d is not removed: %w", g.vmid, err).
			WithHint("if it is not wanted: qm stop %d, and again", g.vmid)
	case err != nil:
		return fmt.Errorf("remove guest %d: %w", g.vmid, err)
	}
	return nil
}

// removeUploads deletes what a crash left of vm's uploads, wherever they were sent.
func (p *Place) removeUploads(ctx context.Context, vm *inventory.VM) error {
	list, err := p.storages(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range list {
		if !s.keeps("import") || s.Active != 1 || !isName(s.ID) {
			continue
		}
		var volumes []struct {
			ID string `json:"volid"`
		}
		if err := p.api.get(ctx, "/nodes/"+p.node+"/storage/"+s.ID+"/content", url.Values{"content": {"import"}}, &volumes); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, v := range volumes {
			if strings.HasPrefix(v.ID, s.ID+":import/"+ownTag(vm)+"-") {
				errs = append(errs, p.removeUpload(ctx, v.ID, s.ID))
			}
		}
	}
	return errors.Join(errs...)
}
