package nfc

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"
)

// Wire selects the encryption after the ticket was presented.
type Wire string

const (
	TLS   Wire = ""    // a second TLS session ("nbdssl"); the default
	Plain Wire = "nbd" // no encryption; only the ticket was protected
)

// Compression is the encoding that the host is asked to use. The host may send any fragment without
// compression.
type Compression uint32

const (
	Stored Compression = iota // no compression
	Zlib                      // smallest, and expensive for the host
	FastLZ                    // larger than zlib, and faster
	SkipZ                     // omits zeros; cheapest for the host
)

// compressionNames are the names in flags, by Compression.
var compressionNames = [...]string{"none", "zlib", "fastlz", "skipz"}

// String returns none, zlib, fastlz or skipz.
func (c Compression) String() string {
	if int(c) < len(compressionNames) {
		return compressionNames[c]
	}
	return fmt.Sprintf("compression(%d)", uint32(c))
}

// Buffers are the memory that the host reserves for a session. Zero selects the host's default, 4 of 64
// KiB. No fragment is larger than Size.
type Buffers struct {
	Size  int64 // bytes of one buffer, a multiple of 64 KiB; hosts of 8 refuse more than 2 MiB
	Count int   // number of buffers
}

// The host's own buffers: vixDiskLib.nfcAio.Session.BufSizeIn64KB 1, BufCount 4.
const (
	BufferUnit   = 64 << 10 // unit of Size, and the host's default, in bytes
	hostsCount   = 4        // the host's default number of buffers
	LargestUnits = 32       // highest number of units in one buffer
)

// Memory returns the bytes of the host's NFC memory that the buffers use.
func (b Buffers) Memory() int64 {
	return cmp.Or(b.Size, BufferUnit) * int64(cmp.Or(b.Count, hostsCount))
}

// Options configure how a disk is opened and read. The zero value of each field means its default.
type Options struct {
	Server  string  // host or host:port that issued the ticket; used if the ticket has no host
	Wire    Wire    // encryption of the data; default TLS
	Buffers Buffers // memory on the host; default is the host's

	// Request is the size of one request in bytes, a multiple of 512. Default 1 MiB: the read size that
	// was measured on real hosts. Larger ones were not faster (CDI 3752).
	Request int64

	// Depth is the number of concurrent requests. Default 4.
	Depth int

	// Compression is the one that ReadAt requests. Default Stored.
	Compression Compression

	// Setup bounds the time until the disk is open. Stall bounds the time in which a host that owes an
	// answer sends nothing. Defaults 60 s each.
	Setup, Stall time.Duration

	// Dial connects to a host:port. Default net.Dialer's, within 15 s.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

const (
	defaultRequest = 1 << 20          // default of Request, in bytes
	defaultDepth   = 4                // default of Depth
	defaultSetup   = 60 * time.Second // default of Setup
	defaultStall   = 60 * time.Second // default of Stall
	dialTimeout    = 15 * time.Second // limit of the default Dial
	closeTimeout   = 5 * time.Second  // longest wait for an answer while a session is closed
)

// withDefaults returns o with defaults in place of zero fields.
func (o Options) withDefaults() Options {
	o.Request = cmp.Or(o.Request, defaultRequest)
	o.Depth = max(cmp.Or(o.Depth, defaultDepth), 1)
	o.Setup = cmp.Or(o.Setup, defaultSetup)
	o.Stall = cmp.Or(o.Stall, defaultStall)
	if o.Dial == nil {
		o.Dial = dialTCP
	}
	return o
}

// dialTCP is the default Dial.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", addr)
}
