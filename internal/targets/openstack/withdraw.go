package openstack

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// Withdraw removes what was made of vm: server, volumes, ports and images. What a server of somebody else's
// uses is fault.Conflict, and so is a server that runs.
func (p *Place) Withdraw(ctx context.Context, vm *inventory.VM) error {
	s, err := p.cloud.session(ctx)
	if err != nil {
		return err
	}
	return p.remove(ctx, s, vm)
}

// surely is how often nothing has to be seen: what was made by a call that was cut off may appear late.
const surely = 2

// imageLooks is how often an image is tried to be deleted that something needs: for a minute.
const imageLooks = 20

// remove is Withdraw by a session.
func (p *Place) remove(ctx context.Context, s *session, vm *inventory.VM) error {
	for look, nothing := 0, 0; look < shortWait; look++ {
		there, err := p.find(ctx, s, vm)
		if err != nil {
			return err
		}
		nothing++
		if !there.empty() {
			nothing = 0
			err = p.removeFound(ctx, s, there)
		}
		if nothing == surely {
			return nil
		}
		// A volume that no list shows yet may be made of an image just now.
		if err != nil && !(there.needless() && fault.Is(err, fault.Conflict) && look < imageLooks) {
			return fmt.Errorf("remove what was made of VM %s: %w", vm.Name, err)
		}
		if err := p.cloud.wait(ctx, pause); err != nil {
			return err
		}
	}
	return fault.New(fault.Transient, "what was made of VM %s does not go away", vm.Name).
		WithHint("look at it: openstack%s volume list --property %s=%s", p.cloud.option(), sourceKey, identity(vm))
}

// removeFound asks for what there is to be deleted, as far as nothing of it hangs on another.
func (p *Place) removeFound(ctx context.Context, s *session, there *found) error {
	for _, v := range there.servers {
		if err := p.removeServer(ctx, s, v); err != nil {
			return err
		}
	}
	if len(there.servers) > 0 { // until they are gone, volumes and ports are theirs
		return nil
	}
	for _, v := range there.volumes { // what cannot go stops all before anything goes
		if len(v.Attachments) > 0 {
			return p.removeVolume(ctx, s, v)
		}
	}
	for _, port := range there.ports {
		if err := p.removePort(ctx, s, port); err != nil {
			return err
		}
	}
	for _, v := range there.volumes {
		if moving(v.Status) {
			continue
		}
		if err := p.removeVolume(ctx, s, v); err != nil {
			return err
		}
	}
	if len(there.volumes) > 0 { // images may be needed until they are gone
		return nil
	}
	for _, img := range there.images {
		if err := p.removeImage(ctx, s, img.ID); err != nil {
			return err
		}
	}
	return nil
}
