// Package proxmox brings VMs to Proxmox VE: a Place for package staged. It has two ways.
//
// With the API and a token nothing of ours runs on the node:
//
//	upload disk 0 -> import it -> delete the upload -> disk 1 … -> boot order, done
//
// The VM is made first, without disks, and marked as ours and unfinished: so whoever comes after a
// crash finds it, and which of its disks are there. Each disk is then uploaded to a storage with
// content "import", with its SHA-256, by which the node proves what arrived; imported onto the
// storage where it is to live; and its upload deleted. So the most room that is taken for the time
// being is that of one disk.
//
// With a login on the node, Options.SSH, volumes are written to, also while the VM still runs:
//
//	hold a VMID -> allocate volumes -> fill what is not on record -> … -> options and disks -> boot entries, done
//
// A volume is filled through qemu-nbd on the node, which reads back what was written: see filling. So are
// the boot entries of EFI added to the variables that Proxmox made: see variables.
//
// Start powers a finished guest on, follows the node's task to its end, and looks whether the guest runs.
//
// # Terms
//
// A guest is a VM of Proxmox's, named by its VMID. A Machine is what a guest is made of: parameters
// of the API, in order. The mark is the first line of a guest's description: which VM of VMware's it
// was, and the VMID that it was given. A clone has the mark with another's VMID, so that it is
// nobody's but its maker's. A task is what the node does after it answered; its UPID names it.
//
// # What it does not do
//
// Guests are not started before somebody says Start, nor together with their node. It does not resize volumes: a
// disk that grew is written anew.
package proxmox

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/targets/ssh"
)

// Options say how VMs are delivered. What New's address says of the same goes before.
type Options struct {
	Token       Token  // of the API
	Fingerprint string // SHA-256 of the node's certificate; the system's authorities vouch if empty

	Storage string // for disks that Maps do not send elsewhere; local-lvm if empty
	Import  string // for uploads; the one with content import that has the most room if empty

	// Bridge is what network cards join; vmbr0 if empty: the name of a bridge, or BRIDGE,TAG for a VLAN.
	Bridge string

	// Maps say otherwise for cards of some networks of VMware's, and for disks of some datastores. They
	// also say what guests are called.
	Maps namemap.Map

	CPU string // the model that guests see; x86-64-v2-AES if empty, which every host has since 2011

	// SSH has disks written into their volumes by a login on the node, USER@HOST:PORT, and not uploaded.
	// KeyFile and KnownHosts are those that ssh would not find by itself.
	SSH                 string
	KeyFile, KnownHosts string

	// Wait waits between two questions, or until ctx ends. Nil: by the clock.
	Wait func(ctx context.Context, d time.Duration) error

	// Now tells the time, which is compared with the node's. Nil: the clock.
	Now func() time.Time

	ssh ssh.Login // what SSH says
}

// New returns the node at an address such as
//
//	https://pve1:8006/pve1?storage=local-lvm
//
// Its host may be any of the cluster, its path is the node that gets the guests. The query may have
// storage, import, bridge, cpu, fingerprint, token for the name of a file, ssh, and for ssh keyfile and
// known_hosts. It asks nobody.
func New(address string, o Options) (*Place, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fault.New(fault.Invalid, "Proxmox address: %w", err)
	}
	node := strings.Trim(u.Path, "/")
	if u.Scheme != "https" || u.Host == "" || u.User != nil || !isName(node) {
		return nil, fault.New(fault.Invalid, "%s is not the address of a Proxmox node", u.Redacted()).
			WithHint("write proxmox:https://HOST:8006/NODE?storage=STORAGE; pvesh get /nodes lists the nodes")
	}
	if err := o.take(u.Query()); err != nil {
		return nil, err
	}
	if u.Port() == "" {
		u.Host += ":8006"
	}
	o.Storage, o.Bridge = cmp.Or(o.Storage, "local-lvm"), cmp.Or(o.Bridge, "vmbr0")
	o.CPU = cmp.Or(o.CPU, "x86-64-v2-AES")
	if o.Wait == nil {
		o.Wait = sleep.For
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	api, err := newClient(u.Host, o)
	return newPlace(api, node, o), err
}

// parameters returns the field of each parameter of an address. The token is a file, which take reads.
func (o *Options) parameters(tokenFile *string) map[string]*string {
	return map[string]*string{
		"storage": &o.Storage, "import": &o.Import, "bridge": &o.Bridge, "cpu": &o.CPU, "fingerprint": &o.Fingerprint, "token": tokenFile,
		"ssh": &o.SSH, "keyfile": &o.KeyFile, "known_hosts": &o.KnownHosts,
	}
}

// Parameters returns the names of the parameters of an address, sorted.
func Parameters() []string { return slices.Sorted(maps.Keys(new(Options).parameters(nil))) }

// take reads what the address says.
func (o *Options) take(query url.Values) error {
	var tokenFile string
	into := o.parameters(&tokenFile)
	for key := range query {
		if into[key] == nil {
			return fault.New(fault.Invalid, "a Proxmox address has no %q", key).
				WithHint("it may have storage, import, bridge, cpu, fingerprint, token, ssh, keyfile and known_hosts")
		}
		*into[key] = query.Get(key)
	}
	if !query.Has("token") {
		return nil
	}
	token, err := ReadToken(tokenFile)
	o.Token = token
	return err
}

// check refuses what would change the meaning of a parameter or a path of the API.
func (o *Options) check() error {
	if o.SSH != "" {
		login, err := parseLogin(o.SSH)
		if err != nil {
			return err
		}
		login.KeyFile, login.KnownHosts = o.KeyFile, o.KnownHosts
		o.ssh = login
	}
	for _, name := range []string{o.Storage, o.CPU} {
		if !isName(name) {
			return fault.New(fault.Invalid, "%q is no name of Proxmox's", name)
		}
	}
	if o.Import != "" && !isName(o.Import) {
		return fault.New(fault.Invalid, "%q is no name of a storage", o.Import)
	}
	for from, to := range o.Maps.Networks {
		if namemap.IsPattern(from) { // what it comes to is seen when cards are
			continue
		}
		if _, err := joined(to, o.Bridge); err != nil {
			return err
		}
	}
	_, err := parseNetwork(o.Bridge)
	return err
}

// direct reports whether volumes are written over SSH.
func (o Options) direct() bool { return o.SSH != "" }

// storage is where a disk of a datastore goes.
func (o Options) storage(datastore string) (string, error) {
	name := cmp.Or(o.Maps.Storage(datastore), o.Storage)
	if !isName(name) {
		return "", fault.New(fault.Invalid, "datastore %s cannot go to %q, which is no name of a storage of Proxmox's", datastore, name).
			WithHint("on the node, pvesm status lists the storages")
	}
	return name, nil
}

// isName reports whether s is a name as nodes, storages and bridges have them.
func isName(s string) bool {
	other := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
	}
	return s != "" && len(s) <= 100 && !strings.HasPrefix(s, ".") && strings.IndexFunc(s, other) < 0
}
