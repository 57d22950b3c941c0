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

// Diagnosis is a planned migration under examination, with its source and targets.
type Diagnosis struct {
	Move  Move
	Parts *Parts // its session is nil where there is no source to look at

	vms            []inventory.VM
	Infrastructure                // network of the VMs
	all            []inventory.VM // all VMs of the source, if they were listed
	hostNetworks                  // network cards of the hosts
	nfcAddrs       nfcAddresses   // NFC addresses of the hosts

	survey bool // the user named no VMs
	quiet  bool // a migration follows, which reports its own refusals
}

// LogIn opens the source, and reads the named VMs; all VMs if none is named.
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

// readInventory reads the inventory, and chooses from it.
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

// Moved returns the VMs in a folder with their descriptions at migration. An unreadable one is left
// out: decamp verify reports it.
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

// Infrastructure is what VMs of a source stand on.
type Infrastructure struct {
	hosts  []inventory.Host
	stores []inventory.Datastore
}

// ReadInfrastructure reads hosts and datastores.
func ReadInfrastructure(ctx context.Context, s *esx.Session) (g Infrastructure, err error) {
	if g.hosts, err = s.Hosts(ctx); err != nil {
		return g, err
	}
	g.stores, err = s.Datastores(ctx)
	return g, err
}

// keepUsed keeps of hosts and datastores those that the VMs are on.
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

// wires are how hosts are connected, by host.
type hostNetworks struct {
	nics   map[inventory.MoRef][]inventory.VMkernelNIC
	mounts map[inventory.MoRef][]inventory.Mount
}

// maxHosts are asked for their wires.
const maxHosts = 8

// readHostNetworks reads the network cards of connected hosts. Those of other hosts stay unknown, also if the
// account may not read them.
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
				log.Info("not looked at", "host", h.Name, "err", err)
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

// nfcAddresses are where hosts are asked for disks over NFC, each host:port, in the order in which the
// transport tries them: a ticket names the port, and the interface or not. A host that gives no
// ticket, to this account or at all, is not among them.
type nfcAddresses map[inventory.MoRef][]string

// readNFCAddresses requests one ticket from each connected host, and does not use it.
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
				log.Info("no ticket to see NFC's port by", "host", host, "err", err)
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

// addressesOf returns the addresses of a ticket. If it names no interface, those tagged for backups precede
// the address of the login.
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
