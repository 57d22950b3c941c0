package rpc

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// UUID identifies a domain, pool or network.
type UUID [16]byte

// ParseUUID parses 32 hex digits with or without dashes.
func ParseUUID(s string) (u UUID, err error) {
	p, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(p) != len(u) {
		return u, fault.New(fault.Invalid, "%q is not a UUID", s).WithHint("give the VM one in vSphere, or choose another target")
	}
	return UUID(p), nil
}

// String returns the form with dashes in lower case.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Domain is libvirt's remote_nonnull_domain.
type Domain struct {
	Name string // unique name
	UUID UUID   // unique, and the UUID that the guest sees
	ID   int32  // process-like number of a running domain; -1 if it is off
}

// Pool is libvirt's remote_nonnull_storage_pool.
type Pool struct {
	Name string // unique name
	UUID UUID   // assigned when the pool was defined
}

// Volume is libvirt's remote_nonnull_storage_vol.
type Volume struct{ Pool, Name, Key string }

// Numbers of calls, from remote_protocol.x.
const (
	procOpen             = 1    // REMOTE_PROC_CONNECT_OPEN
	procDomainXML        = 14   // REMOTE_PROC_DOMAIN_GET_XML_DESC
	procDomainByName     = 23   // REMOTE_PROC_DOMAIN_LOOKUP_BY_NAME
	procDomainByUUID     = 24   // REMOTE_PROC_DOMAIN_LOOKUP_BY_UUID
	procNetworkByName    = 46   // REMOTE_PROC_NETWORK_LOOKUP_BY_NAME
	procAuthList         = 66   // lists the accepted authentication methods
	procAuthPolkit       = 70   // authenticates the peer of a local socket by polkit
	procPoolRefresh      = 83   // makes libvirt read the pool's folder or volume group again
	procPoolByName       = 84   // REMOTE_PROC_STORAGE_POOL_LOOKUP_BY_NAME
	procPoolInfo         = 87   // state, capacity, allocation and free bytes
	procPoolXML          = 88   // REMOTE_PROC_STORAGE_POOL_GET_XML_DESC
	procVolumeCreate     = 93   // REMOTE_PROC_STORAGE_VOL_CREATE_XML
	procVolumeDelete     = 94   // REMOTE_PROC_STORAGE_VOL_DELETE
	procVolumeInfo       = 98   // type, capacity and allocation
	procVolumePath       = 100  // REMOTE_PROC_STORAGE_VOL_GET_PATH
	procVersion          = 157  // version of libvirt
	procVolumeUpload     = 208  // opens a stream to a volume
	procVolumeDownload   = 209  // opens a stream from a volume
	procDomainUndefine   = 231  // REMOTE_PROC_DOMAIN_UNDEFINE_FLAGS
	procListDomains      = 273  // REMOTE_PROC_CONNECT_LIST_ALL_DOMAINS
	procListPools        = 281  // REMOTE_PROC_CONNECT_LIST_ALL_STORAGE_POOLS
	procPoolListVolumes  = 282  // REMOTE_PROC_STORAGE_POOL_LIST_ALL_VOLUMES
	procCapabilities     = 342  // REMOTE_PROC_CONNECT_GET_DOMAIN_CAPABILITIES
	procDomainDefineXML  = 350  // REMOTE_PROC_DOMAIN_DEFINE_XML_FLAGS
	domainXMLInactive    = 2    // VIR_DOMAIN_XML_INACTIVE: the persistent definition
	defineValidate       = 1    // VIR_DOMAIN_DEFINE_VALIDATE: reject XML that the schema does not allow
	undefineManagedSave  = 1    // also delete the saved memory
	undefineSnapshots    = 2    // also delete the metadata of snapshots
	undefineNVRAM        = 4    // also delete the EFI variables
	undefineCheckpoints  = 16   // also delete the metadata of checkpoints
	authNone, authPolkit = 0, 2 // authentication methods of procAuthList
)

// Open authenticates by polkit if libvirt requires it, and opens a driver such as "qemu:///system".
// A server that requires SASL is fault.Denied.
func (c *Client) Open(ctx context.Context, driver string) error {
	r, err := c.call(ctx, procAuthList, nil)
	if err != nil {
		return err
	}
	ways := readList(r, r.uint32)
	switch {
	case r.err != nil:
		return r.err
	case len(ways) == 0 || slices.Contains(ways, authNone):
	case slices.Contains(ways, authPolkit):
		if _, err := c.call(ctx, procAuthPolkit, nil); err != nil {
			return fault.New(fault.Denied, "polkit denied access to libvirt: %w", err).OfLogin().
				WithHint("run as root, or join the group that may manage VMs: usermod -aG libvirt $USER")
		}
	default:
		return fault.New(fault.Denied, "libvirt requires a password (SASL), which decamp does not support").OfLogin().
			WithHint("use SSH: qemu+ssh://root@HOST/system, or by TLS with a client's certificate")
	}
	_, err = c.call(ctx, procOpen, args{}.optional(driver).uint32(0))
	return err
}

// SparseDevices is the first version of libvirt that supports sparse streams to and from block devices.
const SparseDevices = 6_007_000

// Version returns the version of libvirt: 9_000_000 is 9.0.0.
func (c *Client) Version(ctx context.Context) (uint64, error) {
	r, err := c.call(ctx, procVersion, nil)
	if err != nil {
		return 0, err
	}
	return r.uint64(), r.err
}

// Domains lists all domains, running or not.
func (c *Client) Domains(ctx context.Context) ([]Domain, error) {
	r, err := c.call(ctx, procListDomains, args{}.uint32(1).uint32(0))
	if err != nil {
		return nil, err
	}
	return readList(r, r.domain), r.err
}

// DomainByName returns the domain with a name. If it does not exist, the error has the code NoDomain.
func (c *Client) DomainByName(ctx context.Context, name string) (Domain, error) {
	return c.callDomain(ctx, procDomainByName, args{}.string(name))
}

// DomainByUUID returns the domain with a UUID. If it does not exist, the error has the code NoDomain.
func (c *Client) DomainByUUID(ctx context.Context, u UUID) (Domain, error) {
	return c.callDomain(ctx, procDomainByUUID, u[:])
}

// DefineDomain defines a domain from XML that matches libvirt's schema. It replaces a domain with the
// same name
// and UUID.
func (c *Client) DefineDomain(ctx context.Context, xml string) (Domain, error) {
	r, err := c.callChange(ctx, procDomainDefineXML, args{}.string(xml).uint32(defineValidate))
	if err != nil {
		return Domain{}, err
	}
	return r.domain(), r.err
}

// callDomain makes a call that returns a domain.
func (c *Client) callDomain(ctx context.Context, proc uint32, a args) (Domain, error) {
	r, err := c.call(ctx, proc, a)
	if err != nil {
		return Domain{}, err
	}
	return r.domain(), r.err
}

// DomainXML returns the persistent definition of a domain.
func (c *Client) DomainXML(ctx context.Context, d Domain) (string, error) {
	return c.callText(ctx, procDomainXML, args{}.domain(d).uint32(domainXMLInactive))
}

// Undefine removes a domain with its EFI variables, saved memory and snapshot metadata. It keeps the
// disks.
func (c *Client) Undefine(ctx context.Context, d Domain) error {
	const all = undefineManagedSave | undefineSnapshots | undefineNVRAM | undefineCheckpoints
	_, err := c.callChange(ctx, procDomainUndefine, args{}.domain(d).uint32(all))
	return err
}

// Capabilities describes what libvirt supports for x86-64 domains of a type such as "kvm". An
// unsupported type
// is an *Error.
func (c *Client) Capabilities(ctx context.Context, domainType string) (string, error) {
	const none = 0 // libvirt chooses the emulator and the machine type
	return c.callText(ctx, procCapabilities, args{}.uint32(none).optional("x86_64").uint32(none).optional(domainType).uint32(0))
}

// PoolFilter selects pools by the bits of virConnectListAllStoragePoolsFlags.
type PoolFilter uint32

// Filters of pools. Pools of any of the listed types match.
const (
	ActivePools  PoolFilter = 1 << 1
	DirPools     PoolFilter = 1 << 6
	FSPools      PoolFilter = 1 << 7
	NetFSPools   PoolFilter = 1 << 8
	LogicalPools PoolFilter = 1 << 9
)

// Pools lists the pools that a filter selects.
func (c *Client) Pools(ctx context.Context, only PoolFilter) ([]Pool, error) {
	r, err := c.call(ctx, procListPools, args{}.uint32(1).uint32(uint32(only)))
	if err != nil {
		return nil, err
	}
	return readList(r, r.pool), r.err
}

// PoolByName returns the pool with a name. If it does not exist, the error has the code NoPool.
func (c *Client) PoolByName(ctx context.Context, name string) (Pool, error) {
	r, err := c.call(ctx, procPoolByName, args{}.string(name))
	if err != nil {
		return Pool{}, err
	}
	return r.pool(), r.err
}

// PoolInfo reports whether a pool is active, and returns its free bytes.
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

// PoolXML returns the definition of a pool.
func (c *Client) PoolXML(ctx context.Context, p Pool) (string, error) {
	return c.callText(ctx, procPoolXML, args{}.pool(p).uint32(0))
}

// Refresh makes libvirt update its list of the volumes in a pool.
func (c *Client) Refresh(ctx context.Context, p Pool) error {
	_, err := c.call(ctx, procPoolRefresh, args{}.pool(p).uint32(0))
	return err
}

// Volumes lists the volumes of a pool as of its last refresh.
func (c *Client) Volumes(ctx context.Context, p Pool) ([]Volume, error) {
	r, err := c.call(ctx, procPoolListVolumes, args{}.pool(p).uint32(1).uint32(0))
	if err != nil {
		return nil, err
	}
	return readList(r, r.volume), r.err
}

// CreateVolume creates a volume from XML.
func (c *Client) CreateVolume(ctx context.Context, p Pool, xml string) (Volume, error) {
	r, err := c.callChange(ctx, procVolumeCreate, args{}.pool(p).string(xml).uint32(0))
	if err != nil {
		return Volume{}, err
	}
	return r.volume(), r.err
}

// DeleteVolume deletes a volume and its content. It returns nil if the volume does not exist.
func (c *Client) DeleteVolume(ctx context.Context, v Volume) error {
	_, err := c.callChange(ctx, procVolumeDelete, args{}.volume(v).uint32(0))
	if IsCode(err, NoVolume) {
		return nil
	}
	return err
}

// VolumeSize returns the capacity of a volume in bytes.
func (c *Client) VolumeSize(ctx context.Context, v Volume) (int64, error) {
	r, err := c.call(ctx, procVolumeInfo, args{}.volume(v))
	if err != nil {
		return 0, err
	}
	_ = r.uint32() // type
	return int64(min(r.uint64(), 1<<62)), r.err
}

// VolumePath returns the path of a volume on libvirt's host.
func (c *Client) VolumePath(ctx context.Context, v Volume) (string, error) {
	return c.callText(ctx, procVolumePath, args{}.volume(v))
}

// callText makes a call that returns a string.
func (c *Client) callText(ctx context.Context, proc uint32, a args) (string, error) {
	r, err := c.call(ctx, proc, a)
	if err != nil {
		return "", err
	}
	return r.string(), r.err
}
