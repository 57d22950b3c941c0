package nfs

import (
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"net/netip"

	"github.com/decamp/decamp/internal/behind"
)

// Options say what a Server serves, and to whom. Zero fields mean the defaults.
type Options struct {
	// Exports are the folders that can be mounted, at least one.
	Exports []Export

	// Admit decides by address who is talked to: the hosts of a run. nil: this machine
	// alone.
	Admit func(netip.Addr) bool

	// Pool is where payloads for the Contents that Export.Open returned come from. While it
	// has none left, connections that write to them are not read. nil: as for plain files.
	Pool *behind.Pool

	// PlainMemory is how many bytes payloads for all other files may take, default 32 MiB.
	PlainMemory int64

	// Durable makes the server keep what RFC 1813 says of stable writes and of names: it
	// answers when they are on the medium. See the package comment for why this is not
	// needed to land a disk.
	Durable bool

	// Verifier is the write verifier. 0: a random one, as RFC 1813 wants it of a server
	// that may lose what it held when it ends.
	Verifier uint64

	// Log gets what the server has to say; nil means nowhere.
	Log *slog.Logger
}

const defaultPlainMemory = 32 << 20

func (o Options) withDefaults() Options {
	if o.Admit == nil {
		o.Admit = netip.Addr.IsLoopback
	}
	if o.PlainMemory == 0 {
		o.PlainMemory = defaultPlainMemory
	}
	if o.Verifier == 0 {
		o.Verifier = randomVerifier()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func randomVerifier() uint64 {
	var p [8]byte
	_, _ = rand.Read(p[:]) // it does not fail
	return binary.BigEndian.Uint64(p[:])
}
