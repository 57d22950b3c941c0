package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/internal/targets/recall"
)

var (
	_ platform.Examiner    = (*Platform)(nil)
	_ platform.ValueLister = (*Platform)(nil)
)

// ListValues implements platform.ValueLister for pool.
func (p *Platform) ListValues(ctx context.Context, parameter string) (names []string, err error) {
	if parameter != "pool" {
		return nil, nil
	}
	c, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	pools, err := c.Pools(ctx, supportedPools)
	for _, each := range pools {
		names = append(names, each.Name)
	}
	return names, errors.Join(err, ignoreClosed(c.Close()))
}

// Examine performs the checks of Check by aspect. libvirt has no call to query permissions, so it
// returns nothing
// for platform.Rights.
func (p *Platform) Examine(ctx context.Context, a platform.Aspect) []platform.AspectResult {
	look := map[platform.Aspect]func(context.Context, *rpc.Client) []platform.AspectResult{
		platform.Login: func(context.Context, *rpc.Client) []platform.AspectResult {
			return []platform.AspectResult{{State: "libvirt answers and accepts the login"}}
		},
		platform.Parts: p.seeType, platform.Storage: p.seePools, platform.Network: p.seeNetworks,
	}[a]
	if look == nil {
		return nil
	}
	c, release, err := recall.Keep(ctx, p, p.connect, func(c *rpc.Client) { _ = c.Close() }) // only queries
	if err != nil {
		return []platform.AspectResult{{Err: err}}
	}
	defer release()
	return look(ctx, c)
}

// seeType checks whether libvirt supports the domain type.
func (p *Platform) seeType(ctx context.Context, c *rpc.Client) []platform.AspectResult {
	if p.opts.Type == "" {
		return nil
	}
	return []platform.AspectResult{platform.NewResult("", "supports domains of type "+p.opts.Type, p.checkType(ctx, c))}
}

// seePools checks all pools that the address and the map name.
func (p *Platform) seePools(ctx context.Context, c *rpc.Client) (looks []platform.AspectResult) {
	seen := map[string]bool{}
	for _, d := range platform.PlaceholderVM(p.opts.Maps).Disks {
		name := cmp.Or(p.opts.Maps.Storage(namemap.Datastore(d)), p.at.pool)
		if seen[name] {
			continue
		}
		seen[name] = true
		found, err := p.poolFinder().findPool(ctx, c, name)
		looks = append(looks, platform.NewResult("pool "+name, fmt.Sprintf("%d MiB are free", found.available>>20), err))
	}
	return looks
}

// seeNetworks checks the libvirt networks of the map. Bridges are not checked, because libvirt does not
// list them.
func (p *Platform) seeNetworks(ctx context.Context, c *rpc.Client) (looks []platform.AspectResult) {
	seen := map[string]bool{}
	for _, card := range platform.PlaceholderVM(p.opts.Maps).NICs {
		name, bridge := dir.DomainOptions{Maps: p.opts.Maps}.Joins(card)
		if bridge || seen[name] {
			continue
		}
		seen[name] = true
		missing, err := missingNetwork(ctx, c, p.at, name)
		look := platform.WarningResult("network "+name, "", missing)
		if err != nil {
			look = platform.AspectResult{Object: "network " + name, Err: libvirtFault(err)}
		}
		looks = append(looks, look)
	}
	return looks
}
