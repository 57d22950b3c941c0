package vsphere

import (
	"fmt"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/lab/nfchost"
)

// nfcTicket admits one NFC connection to the disks of one VM, or to one of them.
type nfcTicket struct {
	host    *nfcHost
	machine *machine
	disk    *vdisk // disk of the ticket; all disks if nil
	service string
	issued  time.Time
}

// issueTicket makes a ticket. Two calls make two.
func (n *nfcHosts) issueTicket(t nfcTicket) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := "52" + newID() // begins as those of real hosts do
	t.issued = n.inventory.now()
	n.tickets[id] = t
	return id
}

// Redeem is part of nfchost.Tickets: a ticket is good once, and only at its host.
func (h *nfcHost) Redeem(id string) (service string, grant nfchost.Grant, ok bool) {
	n := h.hosts
	n.mu.Lock()
	defer n.mu.Unlock()
	t, ok := n.tickets[id]
	if !ok || t.host != h {
		return "", nil, false
	}
	delete(n.tickets, id)
	if life := time.Duration(n.rules.Load().TicketFor); life > 0 && n.inventory.now().Sub(t.issued) >= life {
		return "", nil, false
	}
	return t.service, &nfcGrant{hosts: n, ticket: t}, true
}

// nfcGrant is a ticket that was taken.
type nfcGrant struct {
	hosts  *nfcHosts
	ticket nfcTicket
}

// Texts of ERROR records that hosts were seen to send. The codes of the last two are not
// known.
const (
	nfcTextPermission  = "NfcAioProcessOpenFileMsg: permission check failed"
	nfcTextMultiwriter = "Thin/TBZ/Sparse disks cannot be opened in multiwriter mode"
	nfcTextLocked      = "DiskLib error 16392: Failed to lock the file"
)

// Open is part of nfchost.Grant.
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
	case link.isActive():
		return nil, nfchost.Refuse("Cannot open %s: %s", path, nfcTextMultiwriter)
	case link.disk.served.Load() > 0:
		return nil, nfchost.Refuse("Cannot open %s: %s", path, nfcTextLocked)
	}
	link.disk.opened.Add(1)
	return &nfcDisk{hosts: g.hosts, link: link, chainView: link.chainView()}, nil
}

// nfcService is the object behind the tickets. It is not in the public API.
func nfcServiceRef(vcenter bool) types.ManagedObjectReference {
	if vcenter {
		return types.ManagedObjectReference{Type: "NfcService", Value: "nfcService"}
	}
	return types.ManagedObjectReference{Type: "NfcService", Value: "ha-nfc-service"}
}
