package vsphere

import (
	"fmt"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/lab/nfchost"
)

// An nfcTicket permits one NFC connection to read one or all disks of a VM.
type nfcTicket struct {
	host    *nfcHost  // host that accepts the ticket
	machine *machine  // VM of the ticket
	disk    *vdisk    // disk of the ticket; nil permits all disks
	service string    // service name for PROXY
	issued  time.Time // time of issue on the emulator's clock
}

// issueTicket registers a ticket and returns its session ID.
func (n *nfcHosts) issueTicket(t nfcTicket) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := "52" + newID() // begins as those of real hosts do
	t.issued = n.inventory.now()
	n.tickets[id] = t
	return id
}

// Redeem implements nfchost.Tickets. A ticket is valid once, and only at its host.
func (h *nfcHost) Redeem(id string) (service string, grant nfchost.Grant, ok bool) {
	n := h.hosts
	n.mu.Lock()
	defer n.mu.Unlock()
	t, ok := n.tickets[id]
	if !ok || t.host != h {
		return "", nil, false
	}
	delete(n.tickets, id) // a ticket is valid once
	if life := time.Duration(n.rules.Load().TicketFor); life > 0 && n.inventory.now().Sub(t.issued) >= life {
		return "", nil, false
	}
	return t.service, &nfcGrant{hosts: n, ticket: t}, true
}

// An nfcGrant is a redeemed ticket.
type nfcGrant struct {
	hosts  *nfcHosts // all NFC servers
	ticket nfcTicket // the redeemed ticket
}

// Texts of ERROR records that hosts were seen to send. The codes of the last two are not
// known.
const (
	nfcTextPermission = "NfcAioProcessOpenFileMsg: permission check failed" // the ticket does not include the file
	// a running VM writes to the link
	nfcTextMultiwriter = "Thin/TBZ/Sparse disks cannot be opened in multiwriter mode"
	nfcTextLocked      = "DiskLib error 16392: Failed to lock the file" // a /folder request reads the disk
)

// Open implements nfchost.Grant. The link to which a running VM writes cannot be opened.
func (g *nfcGrant) Open(path string) (nfchost.Disk, error) {
	denied := &nfchost.Refusal{Code: nfchost.CodeReadOnly, Text: fmt.Sprintf("%s for %s", nfcTextPermission, path)}
	p, err := parseVolumePath(path)
	if err != nil {
		return nil, denied
	}
	link, found := g.hosts.inventory.findLink(g.ticket.machine.home.dc, p)
	switch {
	case !found || link.disk.vm != g.ticket.machine || g.ticket.disk != nil && link.disk != g.ticket.disk:
		return nil, denied
	case link.isActive(): // the running VM writes to it
		return nil, nfchost.Refuse("Cannot open %s: %s", path, nfcTextMultiwriter)
	case link.disk.served.Load() > 0:
		return nil, nfchost.Refuse("Cannot open %s: %s", path, nfcTextLocked)
	}
	link.disk.opened.Add(1) // until nfcDisk.Close
	return &nfcDisk{hosts: g.hosts, link: link, chainView: link.chainView()}, nil
}

// nfcServiceRef returns the reference of the NFC service, which the public API does not contain.
func nfcServiceRef(vcenter bool) types.ManagedObjectReference {
	if vcenter {
		return types.ManagedObjectReference{Type: "NfcService", Value: "nfcService"}
	}
	return types.ManagedObjectReference{Type: "NfcService", Value: "ha-nfc-service"}
}
