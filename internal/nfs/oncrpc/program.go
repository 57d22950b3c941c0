package oncrpc

import (
	"context"
	"errors"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// A Program is one RPC program.
type Program struct {
	Number uint32
	Name   string

	// Low and High are the lowest and highest version, which a client with another one is
	// told.
	Low, High uint32

	// Procedure returns a procedure of a version from Low to High; nil if there is none of
	// that number.
	Procedure func(version, number uint32) *Procedure
}

// A Procedure is one procedure of a program.
type Procedure struct {
	Name string

	// Decode takes the arguments and returns what answers the call. It runs in the
	// connection's reader: what it waits for, the client waits for. An error of Call.Args
	// makes the reply GARBAGE_ARGS.
	Decode func(ctx context.Context, c *Call) (Answer, error)

	// Once remembers replies, so that a call that is sent again is not done again. It is
	// nil where doing it again does no harm.
	Once *Cache
}

// An Answer does a call and encodes its results. An error makes the reply SYSTEM_ERR,
// whatever was encoded; ErrNoReply means silence.
type Answer func(ctx context.Context, results *xdr.Encoder) error

// ErrNoReply is returned by an Answer that could not say yes or no, because the server
// ends. The client asks again and gets its answer from the next one.
var ErrNoReply = errors.New("no reply")

// Null is procedure 0 of every program: it does nothing, in order to be measured and to
// show that somebody is there.
var Null = &Procedure{
	Name:   "NULL",
	Decode: func(context.Context, *Call) (Answer, error) { return answerNothing, nil },
}

func answerNothing(context.Context, *xdr.Encoder) error { return nil }
