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

// found is a guest that was made of a VM.
type found struct {
	standing
	vmid int
	node string // which need not be where it was made
}

// madeOf is an error unless the guest, which is complete, was made of vm's images with these contents.
func (g *found) madeOf(vm *inventory.VM, images string) error {
	if g.images == images {
		return nil
	}
	return fault.New(fault.Conflict, "guest %d was made of an earlier copy of VM %s", g.vmid, vm.Name).
		WithHint("if it is not wanted any more: qm destroy %d --purge, and again", g.vmid)
}

// config returns a guest's options. Numbers come as text.
func (c guestClient) config(ctx context.Context, node string, vmid int) (map[string]string, error) {
	var raw map[string]any
	if err := c.api.get(ctx, qemu(node, vmid)+"/config", nil, &raw); err != nil {
		return nil, err
	}
	config := map[string]string{}
	for k, v := range raw {
		config[k] = fmt.Sprint(v)
	}
	return config, nil
}

// find returns the guest that was made of vm, nil if there is none. A guest that is being made
// shows neither tag nor description, therefore it waits for those of ours; this takes seconds, as
// guests are made without disks.
func (c guestClient) find(ctx context.Context, vm *inventory.VM) (*found, error) {
	if err := c.api.settle(ctx, c.node, url.Values{"typefilter": {"qmcreate"}}); err != nil {
		return nil, err
	}
	list, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	var ours []found
	for _, r := range list {
		if r.Type != "qemu" || !r.tagged(ownTag(vm)) {
			continue
		}
		config, err := c.config(ctx, r.Node, r.VMID)
		if fault.Is(err, fault.NotFound) { // gone since it was listed
			continue
		}
		if err != nil {
			return nil, err
		}
		if s := read(config["description"], vm, r.VMID); s.ours {
			ours = append(ours, found{standing: s, vmid: r.VMID, node: r.Node})
		}
	}
	return one(vm, ours)
}

// one refuses to choose between several.
func one(vm *inventory.VM, ours []found) (*found, error) {
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
	return nil, fault.New(fault.Conflict, "guests %s were all made of VM %s", strings.Join(ids, ", "), vm.Name).
		WithHint("look which of them is wanted, and remove the tag %s from the others: qm set VMID --tags ''", ownTag(vm))
}

// destroy removes a guest whose mark was read, with the volumes that it names. Volumes that only
// have its VMID in their names may be of another guest that had the number before, and stay.
func (c guestClient) destroy(ctx context.Context, g *found) error {
	if err := c.api.halt(ctx, g.node, g.vmid); err != nil {
		return err
	}
	_, err := c.api.do(ctx, http.MethodDelete, qemu(g.node, g.vmid), []Param{{"purge", "1"}})
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case fault.Is(err, fault.Conflict):
		return fault.New(fault.Conflict, "guest %d is not removed: %w", g.vmid, err).
			WithHint("if it is not wanted: qm stop %d, and again", g.vmid)
	case err != nil:
		return fmt.Errorf("remove guest %d: %w", g.vmid, err)
	}
	return nil
}

// A resource is a guest as the cluster lists it.
type resource struct {
	Type string `json:"type"` // qemu, or lxc
	VMID int    `json:"vmid"`
	Node string `json:"node"`
	Name string `json:"name"`
	Tags string `json:"tags"`
}

func (r resource) tagged(tag string) bool {
	return slices.Contains(strings.FieldsFunc(r.Tags, func(c rune) bool { return c == ';' || c == ',' || c == ' ' }), tag)
}

// A guestClient lists, finds and removes the guests of a cluster by its API. It has no state but the connection and
// is safe for concurrent use.
type guestClient struct {
	api  *client
	node string // where decamp makes guests
}

// list returns those of the cluster that the token may see.
func (c guestClient) list(ctx context.Context) ([]resource, error) {
	var list []resource
	err := c.api.get(ctx, "/cluster/resources", url.Values{"type": {"vm"}}, &list)
	for _, r := range list {
		if !isName(r.Node) {
			return nil, fault.New(fault.Corrupt, "guest %d is on a node %q", r.VMID, fault.Line(r.Node))
		}
	}
	return list, err
}

// nextID is a VMID that is free now, and reserved for nobody.
func (c guestClient) nextID(ctx context.Context) (int, error) {
	var id loose
	if err := c.api.get(ctx, "/cluster/nextid", nil, &id); err != nil {
		return 0, err
	}
	vmid, err := strconv.Atoi(strings.Trim(string(id), `"`))
	if err != nil || vmid < 100 || vmid > 999999999 {
		return 0, fault.New(fault.Corrupt, "Proxmox %s has %q for the next VMID", c.api.host, fault.Line(string(id)))
	}
	return vmid, nil
}

// loose is a value that is text in one release and a number in another.
type loose string

// UnmarshalJSON keeps the value as it is.
func (l *loose) UnmarshalJSON(b []byte) error {
	*l = loose(b)
	return nil
}

func qemu(node string, vmid int) string { return fmt.Sprintf("/nodes/%s/qemu/%d", node, vmid) }
