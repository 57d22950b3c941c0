package proxmox

import (
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/platform"
)

// examineAspect performs the checks of checkVM by aspect, for a VM with all datastores and networks of
// the map.
func (c checker) examineAspect(ctx context.Context, a platform.Aspect) []platform.AspectResult {
	vm := platform.PlaceholderVM(c.opts.Maps)
	switch a {
	case platform.Login:
		return c.seeLogin(ctx)
	case platform.Parts:
		version, err := c.api.readVersion(ctx)
		if err == nil {
			err = c.checkVersion(version)
		}
		return []platform.AspectResult{platform.NewResult("", "Proxmox VE "+fault.Line(version), err)}
	case platform.Storage:
		return c.seeStorages(ctx, vm)
	case platform.Network:
		return c.seeBridges(ctx, vm)
	case platform.Rights:
		t, err := c.findRequirements(ctx, vm)
		if err == nil {
			err = c.checkRights(ctx, vm, t)
		}
		looks := []platform.AspectResult{platform.NewResult("token "+c.api.token.name(), "has all privileges that a delivery requires", err)}
		if err == nil { // a missing privilege for deliveries is more important
			looks = append(looks, c.seeStarts(ctx)...)
		}
		return looks
	case platform.Clock:
		return c.seeClock(ctx)
	}
	return nil
}

// seeLogin checks the API, the node, and the SSH login if one is configured.
func (c checker) seeLogin(ctx context.Context) []platform.AspectResult {
	_, err := c.api.readVersion(ctx)
	looks := []platform.AspectResult{platform.NewResult("", "the API is reachable, the certificate is trusted, and the token is valid", err)}
	if err != nil {
		return looks
	}
	looks = append(looks, platform.NewResult("node "+c.node, "online", c.checkOnline(ctx)))
	if c.opts.isDirect() {
		looks = append(looks, platform.NewResult("ssh "+c.opts.SSH, "accepts the login, and has the required programs", c.shell.checkNode(ctx)))
	}
	return looks
}

// seeStarts returns a warning if the token may not start guests, which only --start requires.
func (c checker) seeStarts(ctx context.Context) []platform.AspectResult {
	vmid, err := c.guests.nextID(ctx)
	if err != nil {
		return nil // checkRights has reported the error
	}
	missing, err := c.api.missingPrivileges(ctx, fmt.Sprintf("/vms/%d", vmid), []string{"VM.PowerMgmt"})
	if err != nil || len(missing) == 0 {
		return nil
	}
	return []platform.AspectResult{platform.WarningResult("token "+c.api.token.name(), "", &inventory.Warning{
		Text:   "it lacks VM.PowerMgmt on /vms: it can deliver guests, but not start them (--start)",
		Remedy: c.api.token.grantCommand("DecampStart", "/vms", missing),
	})}
}

// seeStorages checks the storages for disks and uploads.
func (c checker) seeStorages(ctx context.Context, vm *inventory.VM) []platform.AspectResult {
	list, err := c.storages.list(ctx)
	if err != nil {
		return []platform.AspectResult{{Err: err}}
	}
	see := func(use string, s storage, err error) platform.AspectResult {
		return platform.NewResult(use, fmt.Sprintf("storage %s is of type %s, %d MiB are free", s.ID, s.Type, s.Avail>>20), err)
	}
	var looks []platform.AspectResult
	seen := map[string]bool{}
	for _, d := range vm.Disks {
		one := *vm
		one.Disks = []inventory.Disk{d}
		into, err := c.storageShares(&one, list)
		if err != nil {
			looks = append(looks, see("disks", storage{}, err))
			continue
		}
		if s := into[0].storage; !seen[s.ID] {
			seen[s.ID] = true
			looks = append(looks, see("disks", s, nil))
		}
	}
	if !c.opts.isDirect() {
		s, err := c.storages.forUploads(c.opts.Import, list)
		looks = append(looks, see("uploads", s, err))
	}
	return looks
}

// seeBridges checks the bridges for the networks of the map and for all other networks.
func (c checker) seeBridges(ctx context.Context, vm *inventory.VM) []platform.AspectResult {
	kinds, err := c.api.listBridges(ctx, c.node)
	if err != nil {
		return []platform.AspectResult{{Err: err}}
	}
	var looks []platform.AspectResult
	for _, card := range vm.NICs {
		one := &inventory.VM{NICs: []inventory.NIC{card}}
		t := requirements{kinds: kinds}
		if t.networks, err = c.opts.cardNetworks(one); err == nil {
			err = c.checkNetworks(one, t)
		}
		looks = append(looks, platform.NewResult(platform.Cards(card), "the bridge exists", err))
	}
	return looks
}

// seeClock compares the node's clock at its last answer with the local clock.
func (c checker) seeClock(ctx context.Context) []platform.AspectResult {
	if _, err := c.api.readVersion(ctx); err != nil {
		return []platform.AspectResult{{Err: err}}
	}
	skew := time.Duration(c.api.skew.Load()).Abs().Round(time.Second)
	return []platform.AspectResult{platform.WarningResult("", fmt.Sprintf("its clock differs by %v from the local clock", skew), c.api.clockWarning())}
}
