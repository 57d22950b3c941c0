package rpc

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// UUID is of a domain or pool.
type UUID [16]byte

// ParseUUID reads the form with dashes.
func ParseUUID(s string) (u UUID, err error) {
	p, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(p) != len(u) {
		return u, fault.New(fault.Invalid, "%q is not a UUID", s).WithHint("give the VM one in vSphere, or choose another target")
	}
	return UUID(p), nil
}

// String gives the form with dashes, in lower case.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// A Domain is a VM that libvirt knows.
type Domain struct {
	Name string
	UUID UUID
	ID   int32 // -1 while it is off
}

// A Pool is where libvirt keeps volumes.
type Pool struct {
	Name string
	UUID UUID
}

// A Volume is a file or device in a pool.
type Volume struct{ Pool, Name, Key string }

// Numbers of calls, from remote_protocol.x.
const (
	procOpen             = 1
	procDomainXML        = 14
	procDomainByName     = 23
	procDomainByUUID     = 24
	procNetworkByName    = 46
	procAuthList         = 66
	procAuthPolkit       = 70
	procPoolRefresh      = 83
	procPoolByName       = 84
	procPoolInfo         = 87
	procPoolXML          = 88
	procVolumeCreate     = 93
	procVolumeDelete     = 94
	procVolumeInfo       = 98
	procVolumePath       = 100
	procVersion          = 157 // of libvirt
	procVolumeUpload     = 208
	procVolumeDownload   = 209
	procDomainUndefine   = 231
	procListDomains      = 273
	procPoolListVolumes  = 282
	procCapabilities     = 342
	procDomainDefineXML  = 350
	domainXMLInactive    = 2 // as it would be started
	defineValidate       = 1
	undefineManagedSave  = 1
	undefineSnapshots    = 2
	undefineNVRAM        = 4
	undefineCheckpoints  = 16
	authNone, authPolkit = 0, 2
)

// Open says who we are, as far as libvirt asks, and which of its drivers is meant: "qemu:///system".
func (c *Client) Open(ctx context.Context, driver string) error {
	r, err := c.call(ctx, procAuthList, nil)
	if err != nil {
		return err
	}
	ways := list(r, r.uint32)
	switch {
	case r.err != nil:
		return r.err
	case len(ways) == 0 || slices.Contains(ways, authNone):
	case slices.Contains(ways, authPolkit):
		if _, err := c.call(ctx, procAuthPolkit, nil); err != nil {
			return fault.New(fault.Denied, "libvirt asked polkit, which refused: %w", err).OfLogin().
				WithHint("run as root, or join the group that may manage VMs: usermod -aG libvirt $USER")
		}
	default:
		return fault.New(fault.Denied, "libvirt wants a password (SASL), which decamp cannot give").OfLogin().
			WithHint("reach it by SSH: qemu+ssh://root@HOST/system, or by TLS with a client's certificate")
	}
	_, err = c.call(ctx, procOpen, args{}.optional(driver).uint32(0))
	return err
}

// SparseDevices is the version of libvirt whose streams have holes also to and from devices.
const SparseDevices = 6_007_000

// Version is libvirt's own: 9_000_000 is 9.0.0.
func (c *Client) Version(ctx context.Context) (uint64, error) {
	r, err := c.call(ctx, procVersion, nil)
	if err != nil {
		return 0, err
	}
	return r.uint64(), r.err
}

// Domains lists all of them.
func (c *Client) Domains(ctx context.Context) ([]Domain, error) {
	r, err := c.call(ctx, procListDomains, args{}.uint32(1).uint32(0))
	if err != nil {
		return nil, err
	}
	return list(r, r.domain), r.err
}

// DomainByName finds a domain; IsCode NoDomain if there is none.
func (c *Client) DomainByName(ctx context.Context, name string) (Domain, error) {
	return c.domain(ctx, procDomainByName, args{}.string(name))
}

// DomainByUUID finds a domain; IsCode NoDomain if there is none.
func (c *Client) DomainByUUID(ctx context.Context, u UUID) (Domain, error) {
	return c.domain(ctx, procDomainByUUID, u[:])
}

// DefineDomain defines a domain from XML that matches libvirt's schema. One of the same name and UUID
// is replaced.
func (c *Client) DefineDomain(ctx context.Context, xml string) (Domain, error) {
	r, err := c.change(ctx, procDomainDefineXML, args{}.string(xml).uint32(defineValidate))
	if err != nil {
		return Domain{}, err
	}
	return r.domain(), r.err
}

func (c *Client) domain(ctx context.Context, proc uint32, a args) (Domain, error) {
	r, err := c.call(ctx, proc, a)
	if err != nil {
		return Domain{}, err
	}
	return r.domain(), r.err
}

// DomainXML describes a domain as it would be started.
func (c *Client) DomainXML(ctx context.Context, d Domain) (string, error) {
	return c.text(ctx, procDomainXML, args{}.domain(d).uint32(domainXMLInactive))
}

// Undefine makes libvirt forget a domain, with its EFI variables, TPM and snapshots. Its disks stay.
func (c *Client) Undefine(ctx context.Context, d Domain) error {
	const all = undefineManagedSave | undefineSnapshots | undefineNVRAM | undefineCheckpoints
	_, err := c.change(ctx, procDomainUndefine, args{}.domain(d).uint32(all))
	return err
}

// Capabilities describes what domains of a type, such as "kvm", can have on x86-64. That there can be
// none is an *Error.
func (c *Client) Capabilities(ctx context.Context, domainType string) (string, error) {
	const none = 0 // for the emulator and the machine: libvirt's own choice
	return c.text(ctx, procCapabilities, args{}.uint32(none).optional("x86_64").uint32(none).optional(domainType).uint32(0))
}

// PoolByName finds a pool; IsCode NoPool if there is none.
func (c *Client) PoolByName(ctx context.Context, name string) (Pool, error) {
	r, err := c.call(ctx, procPoolByName, args{}.string(name))
	if err != nil {
		return Pool{}, err
	}
	return r.pool(), r.err
}

// PoolInfo tells whether a pool is active, and the bytes that are free in it.
func (c *Client) PoolInfo(ctx context.Context, p Pool) (active bool, available int64, err error) {
	r, err := c.call(ctx, procPoolInfo, args{}.pool(p))
	if err != nil {
		return false, 0, err
	}
	const running = 2
	state := r.uint32()
	_, _ = r.uint64(), r.uint64() // capacity, allocation
	free := r.uint64()
	return state == running, int64(min(free, 1<<62)), r.err
}

// PoolXML describes a pool.
func (c *Client) PoolXML(ctx context.Context, p Pool) (string, error) {
	return c.text(ctx, procPoolXML, args{}.pool(p).uint32(0))
}

// Refresh has libvirt look at what is in a pool.
func (c *Client) Refresh(ctx context.Context, p Pool) error {
	_, err := c.call(ctx, procPoolRefresh, args{}.pool(p).uint32(0))
	return err
}

// Volumes lists what libvirt knows to be in a pool.
func (c *Client) Volumes(ctx context.Context, p Pool) ([]Volume, error) {
	r, err := c.call(ctx, procPoolListVolumes, args{}.pool(p).uint32(1).uint32(0))
	if err != nil {
		return nil, err
	}
	return list(r, r.volume), r.err
}

// CreateVolume makes a volume from XML.
func (c *Client) CreateVolume(ctx context.Context, p Pool, xml string) (Volume, error) {
	r, err := c.change(ctx, procVolumeCreate, args{}.pool(p).string(xml).uint32(0))
	if err != nil {
		return Volume{}, err
	}
	return r.volume(), r.err
}

// DeleteVolume deletes a volume with what is in it. One that is gone is no error.
func (c *Client) DeleteVolume(ctx context.Context, v Volume) error {
	_, err := c.change(ctx, procVolumeDelete, args{}.volume(v).uint32(0))
	if IsCode(err, NoVolume) {
		return nil
	}
	return err
}

// VolumeSize tells how many bytes a volume has.
func (c *Client) VolumeSize(ctx context.Context, v Volume) (int64, error) {
	r, err := c.call(ctx, procVolumeInfo, args{}.volume(v))
	if err != nil {
		return 0, err
	}
	_ = r.uint32() // type
	return int64(min(r.uint64(), 1<<62)), r.err
}

// VolumePath says where a volume is on libvirt's machine.
func (c *Client) VolumePath(ctx context.Context, v Volume) (string, error) {
	return c.text(ctx, procVolumePath, args{}.volume(v))
}

func (c *Client) text(ctx context.Context, proc uint32, a args) (string, error) {
	r, err := c.call(ctx, proc, a)
	if err != nil {
		return "", err
	}
	return r.string(), r.err
}
