package nfsclient

import (
	"net"
	"time"
)

// Config says what to mount and how to behave. Host and Path must be set.
type Config struct {
	Host string // the server's name or address
	Path string // as the server exports it, sent unchanged

	PortmapAddr string // host:port of the portmapper; default port 111 of Host
	Machine     string // who we are, in credentials and locks; default "localhost.localdomain"
	Connections int    // TCP connections for NFS; default 1
	Unstable    bool   // WRITE UNSTABLE and COMMIT in place of FILE_SYNC
	WriteSize   int    // bytes in one WRITE, if the server takes as many; default 64 KiB
	Seed        uint64 // of the order and the number of WRITEs in flight
	Times       Times

	OnEvent func(Event) // called for what happens behind the caller's back; it must not block
}

// Times are how long ESXi waits for what (advanced settings of 8.0U3 and 9.0.1).
type Times struct {
	Mount            time.Duration // all of mounting; default 30 s (NFS.MountTimeout)
	Heartbeat        time.Duration // between heartbeats; default 12 s (NFS.HeartbeatFrequency)
	HeartbeatTimeout time.Duration // for the answer to one; default 5 s (NFS.HeartbeatTimeout)
	APD              time.Duration // from the third missed heartbeat to failing I/O; default 140 s (Misc.APDTimeout)
	Silence          time.Duration // of a server that owes answers, until the connection is given up; default 10 s (NFS.SyncRetries counts tries of 10 s)
	GiveUp           time.Duration // for the answer to one call; default 250 s (NFS.SyncRetries 25 x 10 s)
	Reconnect        time.Duration // between attempts to connect; default 1 s (not documented)
	Jukebox          time.Duration // before a call is repeated that met NFS3ERR_JUKEBOX; default 5 s (not documented)
	LockUpdate       time.Duration // between renewals of a lock; default 10 s (NFS.DiskFileLockUpdateFreq)
	LockTimeout      time.Duration // for one renewal; default 5 s (NFS.LockUpdateTimeout)
	LockBreak        time.Duration // before a stale lock is broken; default 10 s (NFS.LockBreakTimeout)
}

const (
	apdStartCount  = 3 // missed heartbeats that start the APD timer (NFS.ApdStartCount)
	lockMaxFailure = 3 // failed renewals that lose a lock (NFS.LockRenewMaxFailureNumber)

	portmapPort  = "111"
	maxHandle    = 56       // 64 bytes fail to mount (WinNFSd issue 73, nfs-ganesha mailing list)
	ioSize       = 64 << 10 // what vmkfstools reads and writes at a time
	minInFlight  = 11       // from published figures: 7,693 I/Os a second at 1.5 ms,
	maxInFlight  = 30       // and 3,349 at 9 ms
	reorderDepth = 4        // WRITEs that may overtake each other; "not strictly ordered" is all that is known
)

// staleAfter is when a lock that nobody renews is stale: 10 x 3 + 5 = 35 s by default.
func (t Times) staleAfter() time.Duration {
	return lockMaxFailure*t.LockUpdate + t.LockTimeout
}

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

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
