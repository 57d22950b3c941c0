package proxmox

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// found is a guest that decamp created for a VM.
type found struct {
	guestStatus
	vmid int    // number of the guest in the cluster
	node string // current node, which may differ from the node where it was created
}

// madeOf returns fault.Conflict unless the finished guest contains the images with this hash.
func (g *found) madeOf(vm *inventory.VM, images string) error {
	if g.images == images {
		return nil
	}
	return fault.New(fault.Conflict, "guest %d contains an earlier copy of VM %s", g.vmid, vm.Name).
		WithHint("if the earlier copy is not required: qm destroy %d --purge; then run the same command again", g.vmid)
}

// readConfig returns a guest's options. Numbers are converted to strings.
func (c guestClient) readConfig(ctx context.Context, node string, vmid int) (map[string]string, error) {
	var raw map[string]any
	if err := c.api.get(ctx, guestPath(node, vmid)+"/config", nil, &raw); err != nil {
		return nil, err
	}
	config := map[string]string{}
	for k, v := range raw {
		config[k] = fmt.Sprint(v)
	}
	return config, nil
}

// findGuest returns the guest that was created for vm, or nil if it does not exist. A guest has no tag and
// no description
// while it is being created, so findGuest first waits for this token's running creations. They take
// seconds, because
// guests are created without disks.
func (c guestClient) findGuest(ctx context.Context, vm *inventory.VM) (*found, error) {
	if err := c.api.awaitTasks(ctx, c.node, url.Values{"typefilter": {"qmcreate"}}); err != nil {
		return nil, err
	}
	list, err := c.listGuests(ctx)
	if err != nil {
		return nil, err
	}
	var ours []found
	for _, r := range list {
		if r.Type != "qemu" || !r.hasTag(ownTag(vm)) {
			continue
		}
		config, err := c.readConfig(ctx, r.Node, r.VMID)
		if fault.Is(err, fault.NotFound) { // it was removed since it was listed
			continue
		}
		if err != nil {
			return nil, err
		}
		if s := parseDescription(config["description"], vm, r.VMID); s.ours {
			ours = append(ours, found{guestStatus: s, vmid: r.VMID, node: r.Node})
		}
	}
	return singleGuest(vm, ours)
}

// singleGuest returns the only guest, or nil. Several guests are fault.Conflict.
func singleGuest(vm *inventory.VM, ours []found) (*found, error) {
	switch len(ours) {
	case 0:
		return nil, nil
	case 1:
		return &ours[0], nil
	}
	var ids []string
	for _, g := range ours {
		ids = append(ids, fmt.Sprint(g.vmid))
	}
	return nil, fault.New(fault.Conflict, "guests %s all belong to VM %s", strings.Join(ids, ", "), vm.Name).
		WithHint("choose one of them, and remove the tag %s from the others: qm set VMID --tags ''", ownTag(vm))
}

// destroyGuest removes a guest, whose mark the caller has verified, with the volumes in its options. It
// first stops this
// token's tasks for the guest. A running or protected guest is fault.Conflict.
//
// Volumes that only have its VMID in their names may belong to an earlier guest with the same VMID, and
// stay.
func (c guestClient) destroyGuest(ctx context.Context, g *found) error {
	if err := c.api.stopTasks(ctx, g.node, g.vmid); err != nil {
		return err
	}
	_, err := c.api.runTask(ctx, http.MethodDelete, guestPath(g.node, g.vmid), []Param{{"purge", "1"}})
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case fault.Is(err, fault.Conflict):
		return fault.New(fault.Conflict, "guest %d was not removed: %w", g.vmid, err).
			WithHint("if it is not required: qm stop %d; then run the same command again", g.vmid)
	case err != nil:
		return fmt.Errorf("remove guest %d: %w", g.vmid, err)
	}
	return nil
}

// resource is a guest in the cluster's list.
type resource struct {
	Type string `json:"type"` // "qemu" or "lxc"
	VMID int    `json:"vmid"` // unique in the cluster
	Node string `json:"node"` // current node
	Name string `json:"name"` // not unique
	Tags string `json:"tags"` // separated by semicolons, commas or spaces
}

// hasTag reports whether the guest has the tag.
func (r resource) hasTag(tag string) bool {
	return slices.Contains(strings.FieldsFunc(r.Tags, func(c rune) bool { return c == ';' || c == ',' || c == ' ' }), tag)
}

// guestClient lists, finds and removes the guests of a cluster. It is safe for concurrent use.
type guestClient struct {
	api  *client // client of the node
	node string  // node on which decamp creates guests
}

// listGuests returns all guests of the cluster that the token may see.
func (c guestClient) listGuests(ctx context.Context) ([]resource, error) {
	var list []resource
	err := c.api.get(ctx, "/cluster/resources", url.Values{"type": {"vm"}}, &list)
	for _, r := range list {
		if !isName(r.Node) {
			return nil, fault.New(fault.Corrupt, "guest %d is on a node with the invalid name %q", r.VMID, fault.Line(r.Node))
		}
	}
	return list, err
}

// nextID returns a free VMID. It is not reserved.
func (c guestClient) nextID(ctx context.Context) (int, error) {
	var id rawValue
	if err := c.api.get(ctx, "/cluster/nextid", nil, &id); err != nil {
		return 0, err
	}
	vmid, err := strconv.Atoi(strings.Trim(string(id), `"`))
	if err != nil || vmid < 100 || vmid > 999999999 {
		return 0, fault.New(fault.Corrupt, "Proxmox %s returned %q as the next VMID", c.api.host, fault.Line(string(id)))
	}
	return vmid, nil
}

// rawValue is a JSON value that is a string in some releases and a number in others.
type rawValue string

// UnmarshalJSON stores the encoded value.
func (l *rawValue) UnmarshalJSON(b []byte) error {
	*l = rawValue(b)
	return nil
}

// guestPath returns the path of a guest in the API.
func guestPath(node string, vmid int) string { return fmt.Sprintf("/nodes/%s/qemu/%d", node, vmid) }
