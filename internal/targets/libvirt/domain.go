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

// deliveryMark is the element in the metadata of a domain that Deliver defined. A domain that a user
// defined from a domain.xml of a folder does not have it.
type deliveryMark struct {
	XMLName  xml.Name `xml:"urn:decamp:delivery:1 delivery"` // namespace and version of the mark
	Identity string   `xml:"identity,attr"`                  // sourceID of the VM
	Pool     string   `xml:"pool,attr"`                      // pool of the address
}

// domainFinder finds the domains that Deliver defined. It keeps no state apart from the address.
type domainFinder struct{ at address }

// newMark returns the mark for vm's domain.
func (l domainFinder) newMark(vm *inventory.VM) deliveryMark {
	return deliveryMark{Identity: sourceID(vm), Pool: l.at.pool}
}

// findDomain returns vm's domain, or nil if it does not exist. If another domain has its UUID or name, the
// error is
// fault.Conflict.
func (l domainFinder) findDomain(ctx context.Context, c *rpc.Client, vm *inventory.VM, name string) (*rpc.Domain, error) {
	own, err := l.ownDomain(ctx, c, vm)
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
	return nil, l.conflictError(vm, taken, "name")
}

// ownDomain returns the domain with vm's UUID, or nil if it does not exist. If it lacks the mark, the error
// is
// fault.Conflict.
func (l domainFinder) ownDomain(ctx context.Context, c *rpc.Client, vm *inventory.VM) (*rpc.Domain, error) {
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
	if !l.hasMark(vm, text) {
		return nil, l.conflictError(vm, d, "UUID")
	}
	return &d, nil
}

// hasMark reports whether a domain's XML contains the mark that Deliver writes for vm.
func (l domainFinder) hasMark(vm *inventory.VM, text string) bool {
	var x struct {
		Deliveries []deliveryMark `xml:"metadata>delivery"`
	}
	if xml.Unmarshal([]byte(text), &x) != nil {
		return false
	}
	for _, d := range x.Deliveries {
		if d.Identity == l.newMark(vm).Identity && d.Pool == l.at.pool {
			return true
		}
	}
	return false
}

// conflictError returns the error for another domain with vm's name or UUID; property names which.
func (l domainFinder) conflictError(vm *inventory.VM, other rpc.Domain, property string) error {
	return fault.New(fault.Conflict, "libvirt at %s already has a domain %q with the %s of VM %q", l.at, other.Name, property, vm.Name).
		WithHint("if it is not needed: virsh -c %s undefine --nvram %s", fault.Quote(l.at.String()), fault.Quote(other.Name))
}

// undefineOwn undefines vm's domain if it exists and has the mark. If it runs, the error is
// fault.Conflict.
func (l domainFinder) undefineOwn(ctx context.Context, c *rpc.Client, vm *inventory.VM) error {
	d, err := l.ownDomain(ctx, c, vm)
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

// domainXML returns the domain with the disks in their pools and the mark. vars is the path of the
// template for the
// EFI variables at libvirt, or "" if it does not exist.
func (j *job) domainXML(placed []volume, vars string) (string, error) {
	x, err := parseDomain(j.Domain)
	if err != nil {
		return "", err
	}
	for i, img := range j.Images {
		if !setDiskSource(x, img.Path, placed[i]) {
			return "", fault.New(fault.Internal, "the domain of VM %s has no disk at %s", j.VM.Name, img.Path)
		}
	}
	if vars != "" {
		x.OS.NVRam.Template = vars
	} else if x.OS != nil {
		x.OS.NVRam = nil // its file is in the staging folder, which is going to be removed
	}
	mark, err := xml.Marshal(j.domains.newMark(j.VM))
	if err != nil {
		return "", err
	}
	if x.Metadata == nil {
		x.Metadata = &libvirtxml.DomainMetadata{}
	}
	x.Metadata.XML += string(mark)
	return x.Marshal()
}

// toSource returns the source element of the volume's disk. If the device is larger than the disk, a
// slice
// limits what the guest sees.
func (v volume) toSource() *libvirtxml.DomainDiskSource {
	if !v.block {
		return &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: v.path}}
	}
	s := &libvirtxml.DomainDiskSource{Block: &libvirtxml.DomainDiskSourceBlock{Dev: v.path}}
	if v.deviceSize > v.size {
		s.Slices = &libvirtxml.DomainDiskSlices{Slices: []libvirtxml.DomainDiskSlice{{Type: "storage", Size: uint(v.size)}}}
	}
	return s
}

// parseDomain parses the domain of the staging folder, or one of libvirt.
func parseDomain(text string) (*libvirtxml.Domain, error) {
	var x libvirtxml.Domain
	if err := x.Unmarshal(text); err != nil {
		return nil, fault.New(fault.Internal, "read the domain: %w", err)
	}
	return &x, nil
}

// setDiskSource changes the disk with the image at path to the volume. It returns false if there is no
// such disk.
func setDiskSource(x *libvirtxml.Domain, path string, v volume) bool {
	for i := range x.Devices.Disks {
		d := &x.Devices.Disks[i]
		if d.Source == nil || d.Source.File == nil || d.Source.File.File != path {
			continue
		}
		d.Driver.Type = string(v.format)
		d.Source = v.toSource()
		return true
	}
	return false
}

// missingNetworks returns a warning for each network of the domain's cards that does not exist or is
// not active.
// libvirt defines such a domain, but does not start it.
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

// missingNetwork returns a warning if the network does not exist or is not active, else nil.
func missingNetwork(ctx context.Context, c *rpc.Client, at address, name string) (*inventory.Warning, error) {
	there, active, err := c.Network(ctx, name)
	if err != nil || active {
		return nil, err
	}
	if there {
		return &inventory.Warning{
			Code: "no-network", Text: fmt.Sprintf("libvirt's network %q is not active, so the VM does not start", name),
			Remedy: "start the network: " + at.virshCommand("net-start", name),
		}, nil
	}
	return &inventory.Warning{
		Code: "no-network", Text: fmt.Sprintf("libvirt has no network %q, so the VM does not start", name),
		Remedy: "create the network, or change the VM's network: virsh net-list --all; virsh edit VM",
	}, nil
}

// deliveredDomain returns vm's domain and its persistent definition. If it does not exist, the error is
// fault.NotFound.
func (l domainFinder) deliveredDomain(ctx context.Context, c *rpc.Client, vm *inventory.VM) (d rpc.Domain, x *libvirtxml.Domain, err error) {
	own, err := l.ownDomain(ctx, c, vm)
	if err != nil {
		return d, nil, err
	}
	if own == nil {
		return d, nil, fault.New(fault.NotFound, "libvirt at %s has no domain of VM %q", l.at, vm.Name).
			WithHint("list the domains, and migrate the VM again if it was removed: virsh -c %s list --all", fault.Quote(l.at.String()))
	}
	text, err := c.DomainXML(ctx, *own)
	if err != nil {
		return d, nil, libvirtFault(err)
	}
	x, err = parseDomain(text)
	return *own, x, l.at.wrapError(*own, err)
}
