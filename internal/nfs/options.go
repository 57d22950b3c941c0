package nfs

import (
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"os"

	"github.com/decamp/decamp/internal/writebehind"
)

// Options configure a Server. Zero fields mean the defaults.
type Options struct {
	// Exports are the folders that can be mounted; at least one is required.
	Exports []Export

	// Admit reports whether connections from an address are accepted. Nil admits loopback addresses only.
	Admit func(netip.Addr) bool

	// Pool supplies the memory of payloads for Contents from Export.Open. While it is used up, connections
	// that write to them are not read. Nil uses the memory of plain files.
	Pool *writebehind.Pool

	// PlainMemory bounds the payloads for plain files, in bytes. Default 32 MiB.
	PlainMemory int64

	// Durable makes the server follow RFC 1813 for stable writes and names: it answers when they are on
	// the medium. The package comment explains why landing a disk does not need it.
	Durable bool

	// NoRootSquash lets the clients' root own files as root and give files to other users. By default,
	// root is mapped to user and group 65534.
	NoRootSquash bool

	// Boot identifies the time for which unflushed data survives. Handles of regular files are valid for
	// one Boot, so that no client continues a file that lost its beginning. Default: the kernel's boot ID.
	// With Durable it is ignored, and handles do not expire.
	Boot string

	// Verifier is the write verifier (RFC 1813 section 3.3.7). 0 means a random one: a server that can
	// lose data at a restart must change it then.
	Verifier uint64

	// Log receives events of mounts, connections and errors. Nil discards them.
	Log *slog.Logger
}

// default of Options.PlainMemory, in bytes
const defaultPlainMemory = 32 << 20

// withDefaults returns o with defaults in place of zero fields.
func (o Options) withDefaults() Options {
	if o.Admit == nil {
		o.Admit = netip.Addr.IsLoopback
	}
	if o.PlainMemory == 0 {
		o.PlainMemory = defaultPlainMemory
	}
	if o.Durable {
		o.Boot = ""
	} else if o.Boot == "" {
		o.Boot = thisBoot()
	}
	if o.Verifier == 0 {
		o.Verifier = randomVerifier()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// thisBoot returns the kernel's ID of this boot; "" if it cannot be read.
func thisBoot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(id)
}

// randomVerifier returns a write verifier that an earlier server almost certainly did not have.
func randomVerifier() uint64 {
	var p [8]byte
	_, _ = rand.Read(p[:]) // never fails
	return binary.BigEndian.Uint64(p[:])
}
