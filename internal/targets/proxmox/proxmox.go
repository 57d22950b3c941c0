// Package proxmox delivers VMs to Proxmox VE, with or without an SSH login on the node.
//
// Without a login it uses only the API and a token:
//
//	upload disk 0 -> import it -> delete the upload -> disk 1 … -> boot order, done
//
// The guest is created first, without disks, and marked as unfinished. After a crash, the next delivery finds
// the guest and its disks. Each disk is uploaded to a storage with content "import", together with its
// SHA-256, which the node verifies. The node then imports it to its final storage, and the upload is
// deleted. So the temporary space is that of one disk.
//
// With a login (Options.SSH), volumes are written directly, also while the source VM runs:
//
//	reserve a VMID -> allocate volumes -> fill unrecorded chunks -> … -> options and disks -> boot entries, done
//
// A program on the node writes the volumes with qemu-nbd and reads them back; see volumeFiller. In the same way
// the EFI boot entries are added to the variables that Proxmox has created; see variables.
//
// Start powers a complete guest on, waits for the node's task, and verifies that the guest runs.
//
// # Terms
//
// A guest is a VM in Proxmox, identified by its VMID. A Machine is the definition of a guest: an ordered list of
// options. The mark is the first line of a guest's description; it contains the identity of the source VM, and
// the VMID. A clone has the mark with the VMID of the original, so decamp does not take it for its own. A task is
// an operation that continues on the node after the answer to the request; it is identified by its UPID.
//
// # Limits
//
// A guest is started only by Start, and not with its node. Volumes are not resized: a disk that has grown is
// written again.
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

// Options configure deliveries. Parameters of New's address override them.
type Options struct {
	Token       Token  // API token
	Fingerprint string // SHA-256 of the node's certificate; if empty, the system's CAs are trusted

	Storage string // storage of disks without an entry in Maps; local-lvm if empty
	Import  string // storage for uploads; if empty, the one with content import and the most space

	// Bridge is the network of cards without an entry in Maps: BRIDGE, or BRIDGE,TAG for a VLAN. Empty
	// means vmbr0.
	Bridge string

	// Maps assign networks to cards, and storages to disks by datastore. They also contain new names of
	// VMs.
	Maps namemap.Map

	CPU string // CPU model of guests; x86-64-v2-AES if empty, which hosts since 2011 support

	// SSH is a login on the node, USER@HOST:PORT. If it is set, volumes are written over SSH and nothing
	// is uploaded.
	// KeyFile and KnownHosts are needed only if ssh does not find the files itself.
	SSH                 string
	KeyFile, KnownHosts string

	// Wait sleeps for d, or until ctx ends. A timer is used if it is nil.
	Wait func(ctx context.Context, d time.Duration) error

	// Now returns the local time, for comparison with the node's; time.Now if nil.
	Now func() time.Time

	ssh ssh.Login // parsed form of SSH
}

// New returns the node at an address such as
//
// \thttps://pve1:8006/pve1?storage=local-lvm
//
// The host can be any node of the cluster. The path is the node for new guests. Parameters are storage,
// import, bridge,
// cpu, fingerprint, token (a file name) and ssh, and keyfile and known_hosts for ssh. New sends no
// request.
func New(address string, o Options) (*Platform, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fault.New(fault.Invalid, "Proxmox address: %w", err)
	}
	node := strings.Trim(u.Path, "/")
	if u.Scheme != "https" || u.Host == "" || u.User != nil || !isName(node) {
		return nil, fault.New(fault.Invalid, "%s is not the address of a Proxmox node", u.Redacted()).
			WithHint("write proxmox:https://HOST:8006/NODE?storage=STORAGE; pvesh get /nodes lists the nodes")
	}
	if err := o.parseQuery(u.Query()); err != nil {
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
	if err := o.validate(); err != nil {
		return nil, err
	}
	api, err := newClient(u.Host, o)
	return newPlace(api, node, o), err
}

// parameterFields returns the field for each parameter of an address. The parameter token is the name
// of a file, which
// parseQuery reads.
func (o *Options) parameterFields(tokenFile *string) map[string]*string {
	return map[string]*string{
		"storage": &o.Storage, "import": &o.Import, "bridge": &o.Bridge, "cpu": &o.CPU, "fingerprint": &o.Fingerprint, "token": tokenFile,
		"ssh": &o.SSH, "keyfile": &o.KeyFile, "known_hosts": &o.KnownHosts,
	}
}

// Parameters returns the names of the parameters of an address in alphabetical order.
func Parameters() []string { return slices.Sorted(maps.Keys(new(Options).parameterFields(nil))) }

// parseQuery sets the options from the query of an address, and reads the token.
func (o *Options) parseQuery(query url.Values) error {
	var tokenFile string
	into := o.parameterFields(&tokenFile)
	for key := range query {
		if into[key] == nil {
			return fault.New(fault.Invalid, "a Proxmox address has no parameter %q", key).
				WithHint("the parameters are storage, import, bridge, cpu, fingerprint, token, ssh, keyfile and known_hosts")
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

// validate parses SSH, and returns an error for values that could change the meaning of a request.
func (o *Options) validate() error {
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
			return fault.New(fault.Invalid, "%q is not a valid name in Proxmox", name)
		}
	}
	if o.Import != "" && !isName(o.Import) {
		return fault.New(fault.Invalid, "%q is not a valid storage name", o.Import)
	}
	for from, to := range o.Maps.Networks {
		if namemap.IsPattern(from) { // addCards checks the result for each card
			continue
		}
		if _, err := mappedNetwork(to, o.Bridge); err != nil {
			return err
		}
	}
	_, err := parseNetwork(o.Bridge)
	return err
}

// isDirect reports whether volumes are written over SSH.
func (o Options) isDirect() bool { return o.SSH != "" }

// storageOf returns the storage for disks of a datastore.
func (o Options) storageOf(datastore string) (string, error) {
	name := cmp.Or(o.Maps.Storage(datastore), o.Storage)
	if !isName(name) {
		return "", fault.New(fault.Invalid, "datastore %s is mapped to %q, which is not a valid storage name", datastore, name).
			WithHint("list the storages on the node: pvesm status")
	}
	return name, nil
}

// isName reports whether s is a valid name of a node, storage or bridge.
func isName(s string) bool {
	other := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
	}
	return s != "" && len(s) <= 100 && !strings.HasPrefix(s, ".") && strings.IndexFunc(s, other) < 0
}
