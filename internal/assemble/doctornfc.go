package assemble

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/doctor/path"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/nfc"
)

// nfcDoors are where hosts are asked for disks over NFC, each host:port, in the order in which the
// transport tries them: a ticket names the port, and the interface or not. A host that gives no
// ticket, to this account or at all, is not among them.
type nfcDoors map[inventory.MoRef][]string

// readDoors asks for one ticket of each host that is connected. Nothing is opened with it.
func (a *Assembler) readDoors(ctx context.Context, d *Diagnosis) nfcDoors {
	doors := nfcDoors{}
	if d.Move.Transport != path.NFC {
		return doors
	}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(hostsAtOnce)
	for host, vm := range firstVMs(d.vms) {
		g.Go(func() error {
			t, err := d.Parts.Session.NFCTicket(ctx, vm)
			if err != nil {
				a.Log.Info("no ticket to see NFC's port by", "host", host, "err", err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			doors[host] = d.doorsOf(host, t)
			return nil
		})
	}
	_ = g.Wait() // none returns an error
	return doors
}

// doorsOf is where a ticket leads. Where it names no interface, those that are tagged for backups are
// tried before the one that is logged in to.
func (d *Diagnosis) doorsOf(host inventory.MoRef, t nfc.Ticket) (all []string) {
	port := strconv.Itoa(cmp.Or(t.Port, path.NFCPort))
	if t.Host != "" {
		return []string{net.JoinHostPort(t.Host, port)}
	}
	for _, nic := range d.nics[host] {
		if nic.Backup {
			all = append(all, net.JoinHostPort(nic.Address, port))
		}
	}
	return append(all, net.JoinHostPort(d.Parts.URL.Hostname(), port))
}

// firstVMs are one VM of each host that has any.
func firstVMs(vms []inventory.VM) map[inventory.MoRef]inventory.MoRef {
	first := map[inventory.MoRef]inventory.MoRef{}
	for _, vm := range vms {
		if _, had := first[vm.Host]; !had {
			first[vm.Host] = vm.Ref
		}
	}
	return first
}
