package vsphere

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/lab/nfchost"
)

// NFC configures the answers of hosts on port 902. The zero value is the behaviour of Config.Version
// without rate limits. All fields except Off and Addr can be changed at run time (Lab.SetNFC): rates
// and memory change at once, the others apply to new connections.
type NFC struct {
	Off  bool   `json:"off,omitempty"`  // no listener; tickets name a port that does not answer
	Addr string `json:"addr,omitempty"` // host:port; default the IP of Config.Addr and a free port. Hosts of a vCenter share the IP, the first has the port

	Network string `json:"network,omitempty"` // IP of a vmknic that is tagged vSphereBackupNFC, the next ones of a vCenter's further hosts: NFC listens there and not at Addr, and a vCenter's tickets name it

	LibVersion   uint32 `json:"libVersion,omitempty"`   // version of the NFC library; default by version: 8 11, 7.0.3 9, 7.0 7, 6.7 2
	NoSHA256     bool   `json:"noSha256,omitempty"`     // the banner lacks "SHA256 supported", message 43 is refused; always before 7.0.3
	NoTLS        bool   `json:"noTls,omitempty"`        // the banner lacks "NFCSSL supported"
	TLS13        bool   `json:"tls13,omitempty"`        // whether to offer TLS 1.3
	LateAck      bool   `json:"lateAck,omitempty"`      // message 36 follows 51; always with version 7
	NoVersion    bool   `json:"noVersion,omitempty"`    // word 16 of message 36 is 0: the old synchronous protocol
	LooseRecords bool   `json:"looseRecords,omitempty"` // whether to process several messages of one TLS record
	// lifetime of an unused ticket on the emulator's clock; default unlimited
	TicketFor Duration `json:"ticketFor,omitempty"`

	MaxBuffer     Bytes          `json:"maxBuffer,omitempty"`     // default 2 MiB
	SessionMemory Bytes          `json:"sessionMemory,omitempty"` // size x count of one session; default 16 MiB
	MaxRead       Bytes          `json:"maxRead,omitempty"`       // a longer read gets error 5; default 23 MiB, through vCenter 2 MiB
	Memory        Bytes          `json:"memory,omitempty"`        // memory of one host for NFC; default 48 MiB up to 7, 96 MiB from 8 on; -1 is no limit
	Exhausted     nfchost.Policy `json:"exhausted,omitempty"`     // "" refuses sessions, "read" refuses reads, "queue" makes sessions wait

	// disk bytes/s of one session; VDDK reads 141 to 145 MB/s from real hosts
	SessionRate Bytes    `json:"sessionRate,omitempty"`
	HostRate    Bytes    `json:"hostRate,omitempty"` // disk bytes/s of all sessions of a host; 505 MB/s was reported
	LinkRate    Bytes    `json:"linkRate,omitempty"` // bytes/s on the wire of all sessions of a host
	Latency     Duration `json:"latency,omitempty"`  // latency of each read

	Order     nfchost.Order `json:"order,omitempty"`     // order of fragments: "", reversed, odd-first, mixed
	Fragments []int         `json:"fragments,omitempty"` // sizes of fragments in turn, up to the buffer's
	// number of first reads of each session that are held until all have arrived, then answered newest
	// first
	Hold    int      `json:"hold,omitempty"`
	HoldFor Duration `json:"holdFor,omitempty"` // how long to wait for the held reads; default 3s
	// compression: "" as requested, "stored" never, "mixed" every third fragment stored
	Packing nfchost.Packing `json:"packing,omitempty"`

	ErrorTail  nfchost.Tail `json:"errorTail,omitempty"`  // after which ERROR records a zero reply follows: "" all but those of reads, always, never
	OwnLinkMap bool         `json:"ownLinkMap,omitempty"` // whether QUERY_ALLOCATED_BLOCKS of a delta omits its parents
	DirtyTail  bool         `json:"dirtyTail,omitempty"`  // whether bits of the map beyond its count are ones
}

// Limits that come with a version or a way in.
const (
	nfcMemoryOld     = 48 << 20   // up to 7.0
	nfcMemoryNew     = 96 << 20   // the 8.0 guide
	nfcMaxRead       = 23 << 20   // largest reads that importers request from an ESXi host
	nfcMaxReadVPXA   = 2 << 20    // largest reads that importers request through vCenter
	nfcUnlimited     = -1         // value of NFC.Memory for no limit
	nfcServiceESXi   = "nfc"      // service in tickets of an ESXi host
	nfcServiceVPXA   = "vpxa-nfc" // service in tickets of a vCenter
	nfcTicketVersion = "1.1"      // service version in tickets
)

// nfcLibVersions are the library versions by product version. A longer prefix comes first.
var nfcLibVersions = []struct {
	prefix string
	lib    uint32
}{{"7.0.3", 9}, {"7.", 7}, {"6.7", 2}, {"6.5", 1}, {"6.0", 1}}

// nfcLibVersion returns the version of the NFC library of a product version.
func nfcLibVersion(product string) uint32 {
	for _, v := range nfcLibVersions {
		if strings.HasPrefix(product, v.prefix) {
			return v.lib
		}
	}
	return 11
}

// forVersion returns the rules with the defaults of the product version.
func (n NFC) forVersion(c *Config) NFC {
	product := c.Version
	setDefault(&n.LibVersion, nfcLibVersion(product))
	old := strings.HasPrefix(product, "6.") || strings.HasPrefix(product, "7.")
	n.LateAck = n.LateAck || strings.HasPrefix(product, "7.")
	n.NoSHA256 = n.NoSHA256 || old && !strings.HasPrefix(product, "7.0.3")
	memory, longest := Bytes(nfcMemoryNew), Bytes(nfcMaxRead)
	if old {
		memory = nfcMemoryOld
	}
	if c.VCenter { // reads pass through vpxa
		longest = nfcMaxReadVPXA
	}
	setDefault(&n.Memory, memory)
	setDefault(&n.MaxRead, longest)
	return n
}

// serverRules converts the rules for package nfchost.
func (n NFC) serverRules() nfchost.Rules {
	return nfchost.Rules{
		LibVersion: n.LibVersion, NoSHA256: n.NoSHA256, NoTLS: n.NoTLS, TLS13: n.TLS13, LateAck: n.LateAck, NoVersion: n.NoVersion, LooseRecords: n.LooseRecords,
		MaxBuffer: int64(n.MaxBuffer), SessionMemory: int64(n.SessionMemory), MaxRead: int64(n.MaxRead), Memory: max(0, int64(n.Memory)), Exhausted: n.Exhausted,
		SessionRate: int64(n.SessionRate), HostRate: int64(n.HostRate), LinkRate: int64(n.LinkRate), Latency: time.Duration(n.Latency),
		Order: n.Order, Fragments: n.Fragments, Hold: n.Hold, HoldFor: time.Duration(n.HoldFor), Packing: n.Packing,
		ErrorTail: n.ErrorTail, DirtyTail: n.DirtyTail,
	}
}

// nfcHosts are the NFC servers of all hosts, and the tickets for them.
type nfcHosts struct {
	cfg       *Config    // configuration with defaults
	inventory *inventory // disks that tickets refer to
	listeners *listeners // endpoints, whose certificates the NFC servers share

	rules atomic.Pointer[NFC] // rules in force, with defaults
	all   []*nfcHost          // hosts in the order in which they were added

	mu      sync.Mutex           // guards tickets
	tickets map[string]nfcTicket // unused tickets by session ID
}

// An nfcHost is port 902 of one host.
type nfcHost struct {
	hosts  *nfcHosts                    // all NFC servers
	name   string                       // name of the host in the inventory
	ref    types.ManagedObjectReference // host in the inventory
	cert   *certificate                 // certificate of the port; nil uses that of the host's endpoint
	server *nfchost.Server              // server; nil with NFC.Off
	addr   string                       // host:port, reserved before the server starts
}

// newNFCHosts returns the state without hosts.
func newNFCHosts(cfg *Config, inventory *inventory, listeners *listeners) *nfcHosts {
	n := &nfcHosts{cfg: cfg, inventory: inventory, listeners: listeners, tickets: map[string]nfcTicket{}}
	rules := cfg.NFC.forVersion(cfg)
	n.rules.Store(&rules)
	return n
}

// addNFC reserves the NFC port of a host and starts its server.
func (b *builder) addNFC(h *simulator.HostSystem) error {
	l := b.lab
	host := &nfcHost{hosts: l.nfcHosts, name: h.Name, ref: h.Self, addr: l.ports.reservePort(l.nfcAddr(len(l.nfcHosts.all)))}
	if l.cfg.VCenter && !l.cfg.HostListeners {
		cert, err := newCertificate(h.Name)
		if err != nil {
			return fmt.Errorf("certificate for NFC: %w", err)
		}
		host.cert = cert
	}
	l.nfcHosts.all = append(l.nfcHosts.all, host)
	b.tagBackupNIC(h)
	if l.cfg.NFC.Off { // the address stays reserved and refuses connections
		return nil
	}
	var err error
	host.server, err = nfchost.Listen(nfchost.Config{
		Addr: host.addr, Certificate: func() *tls.Certificate { return &host.tlsCertificate().pair }, Tickets: host,
		Pacer: func(rate int64) nfchost.Pacer { return newBucket(rate) },
		Fault: l.faults.takeNFC, Count: l.stats.countNFC, Rules: l.nfcHosts.rules.Load().serverRules(), Log: l.cfg.Log,
	})
	if err != nil {
		return err
	}
	host.addr = host.server.Addr()
	return nil
}

// backupNIC is the tag of the vmknic for NFC (vSphere 7 and later).
const backupNIC = "vSphereBackupNFC"

// tagBackupNIC tags a vmknic of the host, at both places of the API.
func (b *builder) tagBackupNIC(h *simulator.HostSystem) {
	if b.lab.cfg.NFC.Network == "" {
		return
	}
	ip := b.lab.nfcNetwork(len(b.lab.nfcHosts.all) - 1)
	key := backupNIC + ".key-vim.host.VirtualNic-vmk2"
	tagged := types.VirtualNicManagerNetConfig{
		NicType: backupNIC, MultiSelectAllowed: true, SelectedVnic: []string{key},
		CandidateVnic: []types.HostVirtualNic{{Device: "vmk2", Key: key, Spec: types.HostVirtualNicSpec{Ip: &types.HostIpConfig{IpAddress: ip, SubnetMask: "255.0.0.0"}}}},
	}
	b.ctx.WithLock(h, func() {
		info := types.HostVirtualNicManagerInfo{}
		if h.Config.VirtualNicManagerInfo != nil {
			info = *h.Config.VirtualNicManagerInfo
		}
		info.NetConfig = append(slices.Clone(info.NetConfig), tagged) // the simulator's hosts share theirs
		h.Config.VirtualNicManagerInfo = &info
	})
	if ref := h.ConfigManager.VirtualNicManager; ref != nil {
		if m, ok := b.reg.Get(*ref).(*simulator.HostVirtualNicManager); ok {
			m.Info.NetConfig = append(slices.Clone(m.Info.NetConfig), tagged)
		}
	}
}

// nfcAddr returns the address to bind for the nth host. Only the first host can have a fixed port.
func (n *nfcHosts) nfcAddr(nth int) string {
	if n.cfg.NFC.Network != "" {
		return net.JoinHostPort(n.nfcNetwork(nth), "0")
	}
	if n.cfg.NFC.Addr != "" && nth == 0 {
		return n.cfg.NFC.Addr
	}
	host, _, err := net.SplitHostPort(n.listeners.main.addr)
	if n.cfg.NFC.Addr != "" {
		host, _, err = net.SplitHostPort(n.cfg.NFC.Addr)
	}
	if err != nil {
		return "127.0.0.1:0" // Config.Addr was good enough to listen on
	}
	return net.JoinHostPort(host, "0")
}

// nfcNetwork returns the IP of the nth host's tagged vmknic. Each host has a different one.
func (n *nfcHosts) nfcNetwork(nth int) string {
	ip, err := netip.ParseAddr(n.cfg.NFC.Network)
	for ; nth > 0 && err == nil; nth-- {
		ip = ip.Next()
	}
	return ip.String()
}

// tlsCertificate returns the certificate that the host also presents on port 443.
func (h *nfcHost) tlsCertificate() *certificate {
	switch e := h.hosts.listeners.hosts[h.endpointName()]; {
	case h.cert != nil:
		return h.cert
	case e != nil:
		return e.cert.Load()
	}
	return h.hosts.listeners.main.cert.Load()
}

// endpointName returns the configured name of the host: the inverse of listeners.hostName.
func (h *nfcHost) endpointName() string {
	for name, e := range h.hosts.listeners.hosts {
		if e.addr == h.name {
			return name
		}
	}
	return h.name
}

// findHost returns the NFC server of a host, or nil.
func (n *nfcHosts) findHost(ref types.ManagedObjectReference) *nfcHost {
	for _, h := range n.all {
		if h.ref == ref {
			return h
		}
	}
	return nil
}

// eachServer runs do for every server until one fails.
func (n *nfcHosts) eachServer(do func(*nfchost.Server) error) error {
	for _, h := range n.all {
		if h.server == nil {
			continue
		}
		if err := do(h.server); err != nil {
			return fmt.Errorf("NFC of %s: %w", h.name, err)
		}
	}
	return nil
}

// NFCAddr returns the host:port of a host's NFC server, by the host's name in the inventory. An empty
// name is the first host.
func (n *nfcHosts) NFCAddr(host string) string {
	for _, h := range n.all {
		if host == "" || h.name == host || h.endpointName() == host {
			return h.addr
		}
	}
	return ""
}

// NFC returns the rules in force, with defaults.
func (n *nfcHosts) NFC() NFC { return *n.rules.Load() }

// SetNFC changes the rules of all hosts.
func (n *nfcHosts) SetNFC(want NFC) error {
	if err := want.validate(); err != nil {
		return err
	}
	rules := want.forVersion(n.cfg)
	n.rules.Store(&rules)
	return n.eachServer(func(s *nfchost.Server) error {
		s.SetRules(rules.serverRules())
		return nil
	})
}

// DropNFC breaks all NFC connections. Unused tickets stay valid.
func (n *nfcHosts) DropNFC() {
	_ = n.eachServer(func(s *nfchost.Server) error {
		s.Drop()
		return nil
	})
}

// MoveVM moves a VM to another host of a vCenter, as vMotion does. Open NFC sessions continue; new
// tickets are for the new host.
func (n *nfcHosts) MoveVM(vm, host string) error {
	m, err := n.inventory.findMachine(vm)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(n.all, func(h *nfcHost) bool { return h.name == host || h.endpointName() == host })
	if i < 0 {
		return fmt.Errorf("the emulator has no host %q", host)
	}
	ctx, reg := n.inventory.newContext(), n.inventory.model.Map()
	moved, ok := reg.Get(m.ref).(*simulator.VirtualMachine)
	if !ok {
		return fmt.Errorf("VM %q is no longer registered", vm)
	}
	var ref types.ManagedObjectReference
	ctx.WithLock(moved, func() {
		req := &types.RelocateVM_Task{This: moved.Self, Spec: types.VirtualMachineRelocateSpec{Host: &n.all[i].ref}}
		ref = moved.RelocateVMTask(ctx, req).(*methods.RelocateVM_TaskBody).Res.Returnval
	})
	_, err = waitForTask(reg, ref)
	return err
}

// validate returns an error for an invalid rule.
func (n NFC) validate() error {
	switch {
	case n.MaxBuffer < 0 || n.SessionMemory < 0 || n.MaxRead < 0 || n.Memory < nfcUnlimited || n.SessionRate < 0 || n.HostRate < 0 || n.LinkRate < 0 ||
		n.Latency < 0 || n.Hold < 0 || n.HoldFor < 0 || n.TicketFor < 0:
		return fmt.Errorf("nfc: want nothing negative, except a memory of -1")
	case n.Network != "" && net.ParseIP(n.Network) == nil:
		return fmt.Errorf("nfc: network %q: want an IP", n.Network)
	case n.Exhausted != nfchost.RefuseSession && n.Exhausted != nfchost.RefuseRead && n.Exhausted != nfchost.Queue:
		return fmt.Errorf("nfc: exhausted %q: want nothing, read or queue", n.Exhausted)
	case n.Order != nfchost.InOrder && n.Order != nfchost.Reversed && n.Order != nfchost.OddFirst && n.Order != nfchost.Mixed:
		return fmt.Errorf("nfc: order %q: want nothing, reversed, odd-first or mixed", n.Order)
	case n.Packing != nfchost.Honour && n.Packing != nfchost.Stored && n.Packing != nfchost.Variety:
		return fmt.Errorf("nfc: packing %q: want nothing, stored or mixed", n.Packing)
	case n.ErrorTail != nfchost.TailControl && n.ErrorTail != nfchost.TailAlways && n.ErrorTail != nfchost.TailNever:
		return fmt.Errorf("nfc: errorTail %q: want nothing, always or never", n.ErrorTail)
	}
	for _, size := range n.Fragments {
		if size < 1 {
			return fmt.Errorf("nfc: a fragment of %d bytes", size)
		}
	}
	return nil
}

// Reserve implements nfchost.Pacer.
func (b *bucket) Reserve(n int, now time.Time) time.Duration { return b.reserveBytes(n, now) }
