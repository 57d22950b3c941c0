package assemble

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/doctor/path"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/targets/dir"
)

// Diagnosis examines a planned migration: its source, its targets and this machine.
type Diagnosis struct {
	Move  Move   // the planned migration
	Parts *Parts // opened parts; the session is nil if no source is examined

	vms            []inventory.VM // selected VMs; all VMs if the user named none
	Infrastructure                // network of the VMs
	all            []inventory.VM // all VMs of the source, if they were listed
	hostNetworks                  // network cards of the hosts
	nfcAddrs       nfcAddresses   // NFC addresses of the hosts

	survey bool // the user named no VMs
	quiet  bool // a migration follows, which reports its own refusals
}

// LogIn opens the source and reads the named VMs, or all VMs without names. It also reads the network
// cards of hosts and opens the transport.
func (a *Assembler) LogIn(ctx context.Context, d *Diagnosis, rawURL string, names []string) error {
	p := &SourceParts{Assembler: a, Parts: d.Parts, Login: d.Move.Login, SSH: d.Move.SSH}
	if err := a.OpenURL(ctx, p, rawURL); err != nil {
		return err
	}
	if err := d.readInventory(ctx, names); err != nil {
		return err
	}
	d.hostNetworks = readHostNetworks(ctx, a.Log, d.Parts.Session, d.hosts)
	d.nfcAddrs = d.readNFCAddresses(ctx, a.Log)
	return a.openTransport(ctx, d.Parts, d.Move.Options)
}

// readInventory reads the inventory and selects the named VMs. If a name is unknown, it returns an
// error and selects none.
func (d *Diagnosis) readInventory(ctx context.Context, names []string) error {
	var on Infrastructure
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { on, err = ReadInfrastructure(gctx, d.Parts.Session); return err })
	g.Go(func() (err error) { d.all, err = d.Parts.Session.VMs(gctx); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	d.vms, d.Infrastructure = d.all, on
	if d.survey = len(names) == 0; d.survey {
		return nil
	}
	d.vms = nil
	find := newFinder(d.all)
	for _, name := range names {
		vm, err := find.Find(name)
		if err != nil {
			d.vms = nil
			return err
		}
		d.vms = append(d.vms, *vm)
	}
	d.keepUsed(on)
	return nil
}

// Moved returns the descriptions of the VMs that were migrated to a folder. It skips unreadable
// records, which decamp verify reports.
func Moved(folder string) (vms []inventory.VM) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil // the user of the folder reports the error
	}
	for _, e := range entries {
		if r, err := dir.ReadRecord(filepath.Join(folder, e.Name())); err == nil {
			vms = append(vms, *r.Source)
		}
	}
	return vms
}

// Infrastructure has the hosts and datastores of a source.
type Infrastructure struct {
	hosts  []inventory.Host      // hosts in the order of the source
	stores []inventory.Datastore // datastores in the order of the source
}

// ReadInfrastructure reads all hosts and datastores of a source.
func ReadInfrastructure(ctx context.Context, s *esx.Session) (g Infrastructure, err error) {
	if g.hosts, err = s.Hosts(ctx); err != nil {
		return g, err
	}
	g.stores, err = s.Datastores(ctx)
	return g, err
}

// keepUsed sets hosts and datastores to those that the selected VMs use.
func (d *Diagnosis) keepUsed(g Infrastructure) {
	type store struct{ datacenter, name string }
	on, uses := map[inventory.MoRef]bool{}, map[store]bool{}
	for i := range d.vms {
		vm := &d.vms[i]
		on[vm.Host] = true
		for _, disk := range vm.Disks {
			uses[store{vm.Datacenter, disk.Path.Datastore}] = true
			uses[store{vm.Datacenter, disk.Base.Datastore}] = true
		}
	}
	d.hosts = slices.DeleteFunc(slices.Clone(g.hosts), func(h inventory.Host) bool { return !on[h.Ref] })
	d.stores = slices.DeleteFunc(slices.Clone(g.stores), func(s inventory.Datastore) bool { return !uses[store{s.Datacenter, s.Name}] })
}

// hostNetworks describes the network connections of hosts.
type hostNetworks struct {
	nics   map[inventory.MoRef][]inventory.VMkernelNIC // VMkernel NICs by host
	mounts map[inventory.MoRef][]inventory.Mount       // NFS datastores by host
}

// maxHosts is the number of hosts that are queried in parallel.
const maxHosts = 8

// readHostNetworks reads the network connections of connected hosts. Errors are logged: the networks of
// such a host stay unknown, for example because the account may not read them.
func readHostNetworks(ctx context.Context, log *slog.Logger, s *esx.Session, hosts []inventory.Host) hostNetworks {
	w := hostNetworks{map[inventory.MoRef][]inventory.VMkernelNIC{}, map[inventory.MoRef][]inventory.Mount{}}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(maxHosts)
	for _, h := range hosts {
		if !h.Connected {
			continue
		}
		g.Go(func() error {
			nics, nicsErr := s.VMkernelNICs(ctx, h.Ref)
			mounts, mountsErr := s.Mounts(ctx, h.Ref)
			if err := errors.Join(nicsErr, mountsErr); err != nil {
				log.Info("network of host not read", "host", h.Name, "err", err)
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

// nfcAddresses has the addresses, as host:port, from which disks of a host can be read over NFC. They
// are in the order in which the transport tries them. A ticket has the port, and may have the address.
// Hosts that issue no ticket to the account have no entry.
type nfcAddresses map[inventory.MoRef][]string

// readNFCAddresses requests a ticket for one VM on each host, and does not use it. It returns an empty
// map for other transports.
func (d *Diagnosis) readNFCAddresses(ctx context.Context, log *slog.Logger) nfcAddresses {
	doors := nfcAddresses{}
	if d.Move.Transport != path.NFC {
		return doors
	}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(maxHosts)
	for host, vm := range firstVMs(d.vms) {
		g.Go(func() error {
			t, err := d.Parts.Session.NFCTicket(ctx, vm)
			if err != nil {
				log.Info("no NFC ticket", "host", host, "err", err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			doors[host] = d.addressesOf(host, t)
			return nil
		})
	}
	_ = g.Wait() // none returns an error
	return doors
}

// addressesOf returns the addresses of a ticket. If the ticket has no address, those of NICs with the
// backup tag precede the address of the session.
func (d *Diagnosis) addressesOf(host inventory.MoRef, t nfc.Ticket) (all []string) {
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

// firstVMs returns the first VM of each host that has one.
func firstVMs(vms []inventory.VM) map[inventory.MoRef]inventory.MoRef {
	first := map[inventory.MoRef]inventory.MoRef{}
	for _, vm := range vms {
		if _, had := first[vm.Host]; !had {
			first[vm.Host] = vm.Ref
		}
	}
	return first
}
