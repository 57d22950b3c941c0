package oncrpc

import (
	"log/slog"
	"net/netip"
	"time"
)

// Options say what a Server serves and how much it takes. Zero fields mean the defaults.
type Options struct {
	Programs []*Program

	// Admit decides by address who is talked to. Others are reset at once. nil: everybody.
	Admit func(netip.Addr) bool

	// MaxConnections is how many connections there may be, default 1024; MaxPerAddress of
	// one address, default 64: ESXi 7 and later opens up to 32 (SunRPC.MaxConnPerIP). More
	// are reset.
	MaxConnections, MaxPerAddress int

	// MaxCalls is how many calls of one connection are in work at once, default 64: ESXi
	// was seen with 11 to 30, and a Linux client fills what it gets.
	MaxCalls int

	// MaxRecord is the longest record in bytes, default 64 KiB.
	MaxRecord int

	// ReplyMemory is how many bytes large replies may take, default 64 MiB. It must not be
	// less than the largest.
	ReplyMemory int64

	// Hello is how long a new connection may be silent, default 10 s; Stall how long a
	// record may be interrupted, and a reply not be taken, default 60 s.
	Hello, Stall time.Duration

	// Log gets what the server has to say; nil means nowhere.
	Log *slog.Logger
}

const (
	defaultConnections = 1024
	defaultPerAddress  = 64
	defaultCalls       = 64
	defaultRecord      = 64 << 10
	defaultReplyMemory = 64 << 20
	defaultHello       = 10 * time.Second
	defaultStall       = 60 * time.Second
)

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
