package nfsclient

import (
	"net"
	"time"
)

// Config selects an export and the behaviour of the client. Host and Path are required.
type Config struct {
	Host string // name or address of the server
	Path string // exported path, sent unchanged

	PortmapAddr string // host:port of the portmapper; default port 111 of Host
	Machine     string // name of this host in credentials and locks; default "localhost.localdomain"
	Connections int    // TCP connections for NFS; default 1
	Unstable    bool   // WRITE UNSTABLE and COMMIT in place of FILE_SYNC
	WriteSize   int    // bytes in one WRITE, limited by the server's maximum; default 64 KiB
	Seed        uint64 // seed for the order and the number of WRITEs in flight
	Times       Times  // intervals and timeouts; zero fields have defaults

	OnEvent func(Event) // called for events of the connection and of locks; it must not block
}

// Times are the intervals and timeouts of ESXi (advanced settings of 8.0U3 and 9.0.1).
type Times struct {
	Mount            time.Duration // timeout of mounting; default 30 s (NFS.MountTimeout)
	Heartbeat        time.Duration // interval of heartbeats; default 12 s (NFS.HeartbeatFrequency)
	HeartbeatTimeout time.Duration // timeout of one heartbeat; default 5 s (NFS.HeartbeatTimeout)
	APD              time.Duration // time from the third missed heartbeat until I/O fails; default 140 s (Misc.APDTimeout)
	// time without data, while replies are due, until the connection is closed; default 10 s
	// (NFS.SyncRetries counts tries of 10 s)
	Silence     time.Duration
	GiveUp      time.Duration // timeout of one call; default 250 s (NFS.SyncRetries 25 x 10 s)
	Reconnect   time.Duration // interval of attempts to connect; default 1 s (not documented)
	Jukebox     time.Duration // delay before a call is repeated after NFS3ERR_JUKEBOX; default 5 s (not documented)
	LockUpdate  time.Duration // interval of lock renewals; default 10 s (NFS.DiskFileLockUpdateFreq)
	LockTimeout time.Duration // timeout of one renewal; default 5 s (NFS.LockUpdateTimeout)
	LockBreak   time.Duration // delay before a stale lock is broken; default 10 s (NFS.LockBreakTimeout)
}

const (
	apdStartCount  = 3 // missed heartbeats that start the APD timer (NFS.ApdStartCount)
	lockMaxFailure = 3 // failed renewals that lose a lock (NFS.LockRenewMaxFailureNumber)

	portmapPort  = "111"    // TCP port of the portmapper
	maxHandle    = 56       // longest handle that ESXi mounts, in bytes; 64 bytes fail (WinNFSd issue 73, nfs-ganesha mailing list)
	ioSize       = 64 << 10 // size of vmkfstools' reads and writes in bytes
	minInFlight  = 11       // fewest WRITEs in flight, from published figures: 7,693 I/Os a second at 1.5 ms
	maxInFlight  = 30       // most WRITEs in flight, from published figures: 3,349 I/Os a second at 9 ms
	reorderDepth = 4        // WRITEs that may overtake each other; "not strictly ordered" is all that is known
)

// staleAfter returns the time after which a lock that was not renewed is stale: 10 x 3 + 5 = 35 s by
// default.
func (t Times) staleAfter() time.Duration {
	return lockMaxFailure*t.LockUpdate + t.LockTimeout
}

// withDefaults returns the configuration with every zero field set to its default.
func (c Config) withDefaults() Config {
	setDefault(&c.PortmapAddr, net.JoinHostPort(c.Host, portmapPort))
	setDefault(&c.Machine, "localhost.localdomain")
	setDefault(&c.Connections, 1)
	setDefault(&c.WriteSize, ioSize)
	t := &c.Times
	setDefault(&t.Mount, 30*time.Second)
	setDefault(&t.Heartbeat, 12*time.Second)
	setDefault(&t.HeartbeatTimeout, 5*time.Second)
	setDefault(&t.APD, 140*time.Second)
	setDefault(&t.Silence, 10*time.Second)
	setDefault(&t.GiveUp, 250*time.Second)
	setDefault(&t.Reconnect, time.Second)
	setDefault(&t.Jukebox, 5*time.Second)
	setDefault(&t.LockUpdate, 10*time.Second)
	setDefault(&t.LockTimeout, 5*time.Second)
	setDefault(&t.LockBreak, 10*time.Second)
	if c.OnEvent == nil {
		c.OnEvent = func(Event) {}
	}
	return c
}

// setDefault sets *v to d if it is the zero value.
func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
