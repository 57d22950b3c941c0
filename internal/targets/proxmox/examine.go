package proxmox

import (
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/platform"
)

// examine is check by aspects, for a VM that stands in for all.
func (c checker) examine(ctx context.Context, a platform.Aspect) []platform.Look {
	vm := platform.StandIn(c.opts.Maps)
	switch a {
	case platform.Login:
		return c.seeLogin(ctx)
	case platform.Parts:
		version, err := c.api.version(ctx)
		if err == nil {
			err = c.checkVersion(version)
		}
		return []platform.Look{platform.See("", "it is Proxmox VE "+fault.Line(version), err)}
	case platform.Storage:
		return c.seeStorages(ctx, vm)
	case platform.Network:
		return c.seeBridges(ctx, vm)
	case platform.Rights:
		t, err := c.requirements(ctx, vm)
		if err == nil {
			err = c.checkRights(ctx, vm, t)
		}
		looks := []platform.Look{platform.See("token "+c.api.token.name(), "it has all privileges that a delivery takes", err)}
		if err == nil { // first things first
			looks = append(looks, c.seeStarts(ctx)...)
		}
		return looks
	case platform.Clock:
		return c.seeClock(ctx)
	}
	return nil
}

// seeLogin asks the API, then for the node, and then the node itself where it is logged in to.
func (c checker) seeLogin(ctx context.Context) []platform.Look {
	_, err := c.api.version(ctx)
	looks := []platform.Look{platform.See("", "it answers, its certificate is trusted, and the token is known", err)}
	if err != nil {
		return looks
	}
	looks = append(looks, platform.See("node "+c.node, "it is online", c.checkOnline(ctx)))
	if c.opts.direct() {
		looks = append(looks, platform.See("ssh "+c.opts.SSH, "it lets us in, and has what is needed there", c.shell.check(ctx)))
	}
	return looks
}

// seeStarts warns of a token that may start no guests, which only --start takes.
func (c checker) seeStarts(ctx context.Context) []platform.Look {
	vmid, err := c.guests.nextID(ctx)
	if err != nil {
		return nil // who cannot ask for a number was told of it
	}
	missing, err := c.api.lacking(ctx, fmt.Sprintf("/vms/%d", vmid), []string{"VM.PowerMgmt"})
	if err != nil || len(missing) == 0 {
		return nil
	}
	return []platform.Look{platform.Warned("token "+c.api.token.name(), "", &inventory.Warning{
		Text:   "it lacks VM.PowerMgmt on /vms: it delivers guests, and starts none (--start)",
		Remedy: c.api.token.grant("DecampStart", "/vms", missing),
	})}
}

func (c checker) seeStorages(ctx context.Context, vm *inventory.VM) []platform.Look {
	list, err := c.storages.list(ctx)
	if err != nil {
		return []platform.Look{{Err: err}}
	}
	see := func(use string, s storage, err error) platform.Look {
		return platform.See(use, fmt.Sprintf("storage %s is of type %s, %d MiB are free", s.ID, s.Type, s.Avail>>20), err)
	}
	var looks []platform.Look
	seen := map[string]bool{}
	for _, d := range vm.Disks {
		one := *vm
		one.Disks = []inventory.Disk{d}
		into, err := c.shares(&one, list)
		if err != nil {
			looks = append(looks, see("disks", storage{}, err))
			continue
		}
		if s := into[0].storage; !seen[s.ID] {
			seen[s.ID] = true
			looks = append(looks, see("disks", s, nil))
		}
	}
	if !c.opts.direct() {
		s, err := c.storages.forUploads(c.opts.Import, list)
		looks = append(looks, see("uploads", s, err))
	}
	return looks
}

// seeBridges looks at what cards of each network of the map join, and those of all others.
func (c checker) seeBridges(ctx context.Context, vm *inventory.VM) []platform.Look {
	kinds, err := c.api.bridges(ctx, c.node)
	if err != nil {
		return []platform.Look{{Err: err}}
	}
	var looks []platform.Look
	for _, card := range vm.NICs {
		one := &inventory.VM{NICs: []inventory.NIC{card}}
		t := requirements{kinds: kinds}
		if t.joined, err = c.opts.networks(one); err == nil {
			err = c.checkNetworks(one, t)
		}
		looks = append(looks, platform.See(platform.Cards(card), "there is a bridge for cards", err))
	}
	return looks
}

// seeClock compares the node's clock, as it was when it answered last, with ours.
func (c checker) seeClock(ctx context.Context) []platform.Look {
	if _, err := c.api.version(ctx); err != nil {
		return []platform.Look{{Err: err}}
	}
	skew := time.Duration(c.api.skew.Load()).Abs().Round(time.Second)
	return []platform.Look{platform.Warned("", fmt.Sprintf("its clock is %v from ours", skew), c.api.apart())}
}
