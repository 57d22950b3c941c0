package assemble

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
)

// wires are how hosts are connected, by host.
type wires struct {
	nics   map[inventory.MoRef][]inventory.VMkernelNIC
	mounts map[inventory.MoRef][]inventory.Mount
}

// hostsAtOnce are asked for their wires.
const hostsAtOnce = 8

// readWires asks hosts that are connected. What the others have is not known, nor what an account may
// not see.
func (a *Assembler) readWires(ctx context.Context, s *esx.Session, hosts []inventory.Host) wires {
	w := wires{map[inventory.MoRef][]inventory.VMkernelNIC{}, map[inventory.MoRef][]inventory.Mount{}}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(hostsAtOnce)
	for _, h := range hosts {
		if !h.Connected {
			continue
		}
		g.Go(func() error {
			nics, nicsErr := s.VMkernelNICs(ctx, h.Ref)
			mounts, mountsErr := s.Mounts(ctx, h.Ref)
			if err := errors.Join(nicsErr, mountsErr); err != nil {
				a.Log.Info("not looked at", "host", h.Name, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			w.nics[h.Ref], w.mounts[h.Ref] = nics, mounts
			return nil
		})
	}
	_ = g.Wait() // none returns an error
	return w
}
