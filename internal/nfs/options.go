package nfs

import (
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"os"

	"github.com/decamp/decamp/internal/writebehind"
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
	Pool *writebehind.Pool

	// PlainMemory is how many bytes payloads for all other files may take, default 32 MiB.
	PlainMemory int64

	// Durable makes the server keep what RFC 1813 says of stable writes and of names: it
	// answers when they are on the medium. See the package comment for why this is not
	// needed to land a disk.
	Durable bool

	// NoRootSquash lets the clients' root own files as root and give files to other users. By
	// default, root is mapped to nobody.
	NoRootSquash bool

	// Boot is the machine's life so far: another one means that what was written and not
	// flushed is lost. Handles of regular files are good for one boot, so that no client
	// goes on in the middle of a file that has lost its beginning. Default: what the kernel
	// calls its boot; with Durable nothing is lost, and handles are good for ever.
	Boot string

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

// thisBoot returns the kernel's id of this boot; nothing where it does not tell.
func thisBoot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(id)
}

func randomVerifier() uint64 {
	var p [8]byte
	_, _ = rand.Read(p[:]) // it does not fail
	return binary.BigEndian.Uint64(p[:])
}
