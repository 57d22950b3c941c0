package nfc

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"
)

// Wire says how bytes travel after the ticket was shown.
type Wire string

const (
	TLS   Wire = ""    // a second TLS session ("nbdssl"); the default
	Plain Wire = "nbd" // in clear; only the ticket was protected
)

// Compression is how the host is asked to send. It may always send a fragment as it is.
type Compression uint32

const (
	Stored Compression = iota
	Zlib               // smallest, and dear for the host
	FastLZ
	SkipZ // leaves out zeros; cheapest for the host
)

var compressionNames = [...]string{"none", "zlib", "fastlz", "skipz"}

// String returns none, zlib, fastlz or skipz.
func (c Compression) String() string {
	if int(c) < len(compressionNames) {
		return compressionNames[c]
	}
	return fmt.Sprintf("compression(%d)", uint32(c))
}

// Buffers are what the host sets aside for a session. Zero: what it does by itself, 4 of
// 64 KiB. No fragment is larger than Size.
type Buffers struct {
	Size  int64 // bytes, a multiple of 64 KiB; hosts of 8 refuse more than 2 MiB
	Count int
}

// The host's own buffers: vixDiskLib.nfcAio.Session.BufSizeIn64KB 1, BufCount 4.
const (
	BufferUnit   = 64 << 10
	hostsCount   = 4
	LargestUnits = 32 // of BufferUnit in one buffer
)

// Memory returns how many bytes of the host's NFC memory the buffers take.
func (b Buffers) Memory() int64 {
	return cmp.Or(b.Size, BufferUnit) * int64(cmp.Or(b.Count, hostsCount))
}

// Options say how a disk is opened and read. The zero value of each field means its
// default.
type Options struct {
	Server  string // host or host:port that gave the ticket, for tickets that name none
	Wire    Wire
	Buffers Buffers

	// Request is how many bytes one request asks for, a multiple of 512. Default 1 MiB: the
	// read size that was measured on real hosts; larger ones gained nothing (CDI 3752).
	Request int64

	// Depth is how many requests are under way at once. Default 4.
	Depth int

	// Compression is asked for by ReadAt. Default Stored.
	Compression Compression

	// Setup bounds all that happens before the disk is open, Stall the time for which a host
	// that owes an answer may send nothing. Defaults 60 s each.
	Setup, Stall time.Duration

	// Dial connects. Default net.Dialer's, within 15 s.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

const (
	defaultRequest = 1 << 20
	defaultDepth   = 4
	defaultSetup   = 60 * time.Second
	defaultStall   = 60 * time.Second
	dialTimeout    = 15 * time.Second
	closeTimeout   = 5 * time.Second
)

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

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", addr)
}
