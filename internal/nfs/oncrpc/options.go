package oncrpc

import (
	"log/slog"
	"net/netip"
	"time"
)

// Options configure a Server and bound its resources. Zero fields mean the defaults.
type Options struct {
	Programs []*Program // Programs are the RPC programs to serve.

	// Admit reports whether connections from an address are accepted. Others are reset at once. Nil admits
	// all addresses.
	Admit func(netip.Addr) bool

	// MaxConnections bounds the connections, default 1024. MaxPerAddress bounds those of one address,
	// default 64: ESXi 7 and later opens up to 32 (SunRPC.MaxConnPerIP). Further ones are reset.
	MaxConnections, MaxPerAddress int

	// MaxCalls bounds the calls of one connection in work, default 64: ESXi was seen with 11 to 30, and a
	// Linux client uses as many as it may.
	MaxCalls int

	// MaxRecord is the longest record in bytes, default 64 KiB.
	MaxRecord int

	// ReplyMemory bounds the memory of large replies, in bytes; default 64 MiB. It must be at least the
	// size of the largest reply.
	ReplyMemory int64

	// Hello bounds the silence of a new connection, default 10 s. Stall bounds a pause within a record,
	// and the time in which a client must read a reply, default 60 s.
	Hello, Stall time.Duration

	// Log receives refused connections and failed calls. Nil discards them.
	Log *slog.Logger
}

const (
	defaultConnections = 1024             // default of MaxConnections
	defaultPerAddress  = 64               // default of MaxPerAddress
	defaultCalls       = 64               // default of MaxCalls
	defaultRecord      = 64 << 10         // default of MaxRecord, in bytes
	defaultReplyMemory = 64 << 20         // default of ReplyMemory, in bytes
	defaultHello       = 10 * time.Second // default of Hello
	defaultStall       = 60 * time.Second // default of Stall
)

// withDefaults returns o with defaults in place of zero fields.
func (o Options) withDefaults() Options {
	if o.Admit == nil {
		o.Admit = func(netip.Addr) bool { return true }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		field *int
		value int
	}{
		{&o.MaxConnections, defaultConnections},
		{&o.MaxPerAddress, defaultPerAddress},
		{&o.MaxCalls, defaultCalls},
		{&o.MaxRecord, defaultRecord},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if o.ReplyMemory == 0 {
		o.ReplyMemory = defaultReplyMemory
	}
	if o.Hello == 0 {
		o.Hello = defaultHello
	}
	if o.Stall == 0 {
		o.Stall = defaultStall
	}
	return o
}
