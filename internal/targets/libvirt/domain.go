package libvirt

import (
	"context"
	"encoding/xml"
	"fmt"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
)

// delivery is the mark of a domain that Deliver made, in its metadata. One that somebody defined from
// a folder's domain.xml does not have it.
type delivery struct {
	XMLName  xml.Name `xml:"urn:decamp:delivery:1 delivery"`
	Identity string   `xml:"identity,attr"`
	Pool     string   `xml:"pool,attr"`
}

// A domains finds the domains that Deliver made, over any connection to the libvirt at an address. It has no other state.
type domains struct{ at address }

func (l domains) mark(vm *inventory.VM) delivery {
	return delivery{Identity: identity(vm), Pool: l.at.pool}
}

// find looks for vm's domain, nil if there is none. Where somebody else's has its UUID or name, it is
// a fault.Conflict.
func (l domains) find(ctx context.Context, c *rpc.Client, vm *inventory.VM, name string) (*rpc.Domain, error) {
	own, err := l.own(ctx, c, vm)
	if own != nil || err != nil {
		return own, err
	}
	taken, err := c.DomainByName(ctx, name)
	switch {
	case rpc.IsCode(err, rpc.NoDomain):
		return nil, nil
	case err != nil:
		return nil, libvirtFault(err)
	}
	return nil, l.conflict(vm, taken, "name")
}

// own finds the domain with vm's UUID.
func (l domains) own(ctx context.Context, c *rpc.Client, vm *inventory.VM) (*rpc.Domain, error) {
	uuid, err := rpc.ParseUUID(vm.UUID)
	if err != nil {
		return nil, fmt.Errorf("VM %s: %w", vm.Name, err)
	}
	d, err := c.DomainByUUID(ctx, uuid)
	if rpc.IsCode(err, rpc.NoDomain) {
		return nil, nil
	}
	if err != nil {
		return nil, libvirtFault(err)
	}
	text, err := c.DomainXML(ctx, d)
	if rpc.IsCode(err, rpc.NoDomain) {
		return nil, nil
	}
	if err != nil {
		return nil, libvirtFault(err)
	}
	if !l.marked(vm, text) {
		return nil, l.conflict(vm, d, "UUID")
	}
	return &d, nil
}

// marked reports whether a domain is what Deliver made of vm.
func (l domains) marked(vm *inventory.VM, text string) bool {
	var x struct {
		Deliveries []delivery `xml:"metadata>delivery"`
	}
	if xml.Unmarshal([]byte(text), &x) != nil {
		return false
	}
	for _, d := range x.Deliveries {
		if d.Identity == l.mark(vm).Identity && d.Pool == l.at.pool {
			return true
		}
	}
	return false
}

func (l domains) conflict(vm *inventory.VM, other rpc.Domain, what string) error {
	return fault.New(fault.Conflict, "libvirt at %s has a domain %q already, with the %s of VM %q", l.at, other.Name, what, vm.Name).
		WithHint("if nobody needs it: virsh -c %s undefine --nvram %s", fault.Quote(l.at.String()), fault.Quote(other.Name))
}

// forget undefines vm's domain, if it is there and ours.
func (l domains) forget(ctx context.Context, c *rpc.Client, vm *inventory.VM) error {
	d, err := l.own(ctx, c, vm)
	if fault.Is(err, fault.Conflict) || err == nil && d == nil {
		return nil
	}
	if err != nil {
		return err
	}
	if d.ID != -1 {
		return fault.New(fault.Conflict, "domain %q is running", d.Name).
			WithHint("shut it down first: virsh -c %s shutdown %s", fault.Quote(l.at.String()), fault.Quote(d.Name))
	}
	return c.Undefine(ctx, *d)
}

// domainXML is the delivery's domain with its disks where they are now, the file that libvirt makes its
// firmware's variables of, if it has one, and our mark.
func (j *job) domainXML(placed []volume, vars string) (string, error) {
	x, err := parseDomain(j.Domain)
	if err != nil {
		return "", err
	}
	for i, img := range j.Images {
		if !place(x, img.Path, placed[i]) {
			return "", fault.New(fault.Internal, "the domain of VM %s has no disk at %s", j.VM.Name, img.Path)
		}
	}
	if vars != "" {
		x.OS.NVRam.Template = vars
	} else if x.OS != nil {
		x.OS.NVRam = nil // of the stage, which is to be cleared
	}
	mark, err := xml.Marshal(j.domains.mark(j.VM))
	if err != nil {
		return "", err
	}
	if x.Metadata == nil {
		x.Metadata = &libvirtxml.DomainMetadata{}
	}
	x.Metadata.XML += string(mark)
	return x.Marshal()
}

// source is where a disk finds its volume. The guest sees as much as it had of a device that is larger.
func (v volume) source() *libvirtxml.DomainDiskSource {
	if !v.block {
		return &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: v.path}}
	}
	s := &libvirtxml.DomainDiskSource{Block: &libvirtxml.DomainDiskSourceBlock{Dev: v.path}}
	if v.room > v.size {
		s.Slices = &libvirtxml.DomainDiskSlices{Slices: []libvirtxml.DomainDiskSlice{{Type: "storage", Size: uint(v.size)}}}
	}
	return s
}

// parseDomain reads the domain that the stage made.
func parseDomain(text string) (*libvirtxml.Domain, error) {
	var x libvirtxml.Domain
	if err := x.Unmarshal(text); err != nil {
		return nil, fault.New(fault.Internal, "read the domain: %w", err)
	}
	return &x, nil
}

// place has the disk of the image at path be a volume.
func place(x *libvirtxml.Domain, path string, v volume) bool {
	for i := range x.Devices.Disks {
		d := &x.Devices.Disks[i]
		if d.Source == nil || d.Source.File == nil || d.Source.File.File != path {
			continue
		}
		d.Driver.Type = string(v.format)
		d.Source = v.source()
		return true
	}
	return false
}

// missingNetworks warns of networks that a domain's cards join and that are not there, or not active:
// libvirt defines such a domain, and does not start it.
func missingNetworks(ctx context.Context, c *rpc.Client, at address, x *libvirtxml.Domain) ([]inventory.Warning, error) {
	if x.Devices == nil {
		return nil, nil
	}
	var warnings []inventory.Warning
	asked := map[string]bool{}
	for _, card := range x.Devices.Interfaces {
		if card.Source == nil || card.Source.Network == nil || asked[card.Source.Network.Network] {
			continue
		}
		name := card.Source.Network.Network
		asked[name] = true
		missing, err := missingNetwork(ctx, c, at, name)
		if err != nil {
			return nil, err
		}
		if missing != nil {
			warnings = append(warnings, *missing)
		}
	}
	return warnings, nil
}

// missingNetwork warns of a network that is not there, or not active; nil if it is.
func missingNetwork(ctx context.Context, c *rpc.Client, at address, name string) (*inventory.Warning, error) {
	there, active, err := c.Network(ctx, name)
	if err != nil || active {
		return nil, err
	}
	if there {
		return &inventory.Warning{
			Code: "no-network", Text: fmt.Sprintf("libvirt's network %q is not active, so the VM does not start", name),
			Remedy: "start the network: " + at.virsh("net-start", name),
		}, nil
	}
	return &inventory.Warning{
		Code: "no-network", Text: fmt.Sprintf("libvirt has no network %q, so the VM does not start", name),
		Remedy: "make the network, or have the VM join another: virsh net-list --all; virsh edit VM",
	}, nil
}

// delivered finds the domain that Deliver made of vm, and reads it as it would be started.
func (l domains) delivered(ctx context.Context, c *rpc.Client, vm *inventory.VM) (d rpc.Domain, x *libvirtxml.Domain, err error) {
	own, err := l.own(ctx, c, vm)
	if err != nil {
		return d, nil, err
	}
	if own == nil {
		return d, nil, fault.New(fault.NotFound, "libvirt at %s has no domain of VM %q", l.at, vm.Name).
			WithHint("see what is there, and migrate the VM again if somebody removed it: virsh -c %s list --all", fault.Quote(l.at.String()))
	}
	text, err := c.DomainXML(ctx, *own)
	if err != nil {
		return d, nil, libvirtFault(err)
	}
	x, err = parseDomain(text)
	return *own, x, l.at.named(*own, err)
}
