package proxmox

import (
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/staged"
)

var _ staged.Examiner = (*Place)(nil)

// Examine is Check by aspects, for a VM that stands in for all.
func (p *Place) Examine(ctx context.Context, a staged.Aspect) []staged.Look {
	vm := staged.StandIn(p.opts.Maps)
	switch a {
	case staged.Login:
		return p.seeLogin(ctx)
	case staged.Parts:
		version, err := p.version(ctx)
		if err == nil {
			err = p.checkVersion(version)
		}
		return []staged.Look{staged.See("", "it is Proxmox VE "+fault.Line(version), err)}
	case staged.Storage:
		return p.seeStorages(ctx, vm)
	case staged.Network:
		return p.seeBridges(ctx, vm)
	case staged.Rights:
		t, err := p.things(ctx, vm)
		if err == nil {
			err = p.checkRights(ctx, vm, t)
		}
		looks := []staged.Look{staged.See("token "+p.api.token.name(), "it has all privileges that a delivery takes", err)}
		if err == nil { // first things first
			looks = append(looks, p.seeStarts(ctx)...)
		}
		return looks
	case staged.Clock:
		return p.seeClock(ctx)
	}
	return nil
}

// seeLogin asks the API, then for the node, and then the node itself where it is logged in to.
func (p *Place) seeLogin(ctx context.Context) []staged.Look {
	_, err := p.version(ctx)
	looks := []staged.Look{staged.See("", "it answers, its certificate is trusted, and the token is known", err)}
	if err != nil {
		return looks
	}
	looks = append(looks, staged.See("node "+p.node, "it is online", p.checkOnline(ctx)))
	if p.direct() {
		looks = append(looks, staged.See("ssh "+p.opts.SSH, "it lets us in, and has what is needed there", p.checkNode(ctx)))
	}
	return looks
}

// seeStarts warns of a token that may start no guests, which only --start takes.
func (p *Place) seeStarts(ctx context.Context) []staged.Look {
	vmid, err := p.nextID(ctx)
	if err != nil {
		return nil // who cannot ask for a number was told of it
	}
	missing, err := p.lacking(ctx, fmt.Sprintf("/vms/%d", vmid), []string{"VM.PowerMgmt"})
	if err != nil || len(missing) == 0 {
		return nil
	}
	return []staged.Look{staged.Warned("token "+p.api.token.name(), "", &inventory.Warning{
		Text:   "it lacks VM.PowerMgmt on /vms: it delivers guests, and starts none (--start)",
		Remedy: p.grant("DecampStart", "/vms", missing),
	})}
}

func (p *Place) seeStorages(ctx context.Context, vm *inventory.VM) []staged.Look {
	list, err := p.storages(ctx)
	if err != nil {
		return []staged.Look{{Err: err}}
	}
	see := func(use string, s storage, err error) staged.Look {
		return staged.See(use, fmt.Sprintf("storage %s is of type %s, %d MiB are free", s.ID, s.Type, s.Avail>>20), err)
	}
	var looks []staged.Look
	seen := map[string]bool{}
	for _, d := range vm.Disks {
		one := *vm
		one.Disks = []inventory.Disk{d}
		into, err := p.shares(&one, list)
		if err != nil {
			looks = append(looks, see("disks", storage{}, err))
			continue
		}
		if s := into[0].storage; !seen[s.ID] {
			seen[s.ID] = true
			looks = append(looks, see("disks", s, nil))
		}
	}
	if !p.direct() {
		s, err := p.uploadsOn(list)
		looks = append(looks, see("uploads", s, err))
	}
	return looks
}

// seeBridges looks at what cards of each network of the map join, and those of all others.
func (p *Place) seeBridges(ctx context.Context, vm *inventory.VM) []staged.Look {
	kinds, err := p.bridges(ctx)
	if err != nil {
		return []staged.Look{{Err: err}}
	}
	var looks []staged.Look
	for _, card := range vm.NICs {
		one := &inventory.VM{NICs: []inventory.NIC{card}}
		t := things{kinds: kinds}
		if t.joined, err = p.opts.networks(one); err == nil {
			err = p.checkNetworks(one, t)
		}
		looks = append(looks, staged.See(staged.Cards(card), "there is a bridge for cards", err))
	}
	return looks
}

// seeClock compares the node's clock, as it was when it answered last, with ours.
func (p *Place) seeClock(ctx context.Context) []staged.Look {
	if _, err := p.version(ctx); err != nil {
		return []staged.Look{{Err: err}}
	}
	skew := time.Duration(p.api.skew.Load()).Abs().Round(time.Second)
	return []staged.Look{staged.Warned("", fmt.Sprintf("its clock is %v from ours", skew), p.api.apart())}
}
