package oncrpc

import (
	"context"
	"errors"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// A Program is an RPC program with a range of versions.
type Program struct {
	Number uint32 // Number is the program's number in calls.
	Name   string // Name is the program's name in logs.

	// Low and High are the lowest and the highest version. A client that calls another one gets them in
	// the reply.
	Low, High uint32

	// Procedure returns the procedure with that number in a version from Low to High; nil if it does not
	// exist.
	Procedure func(version, number uint32) *Procedure
}

// A Procedure is one procedure of a Program.
type Procedure struct {
	Name string // Name is the procedure's name in logs.

	// Decode decodes the arguments and returns the function that answers the call. It runs in the
	// connection's reader: while it waits, the client waits too. An error of Call.Args makes the reply
	// GARBAGE_ARGS.
	Decode func(ctx context.Context, c *Call) (Answer, error)

	// Once remembers replies, so that a repeated call is not executed again. It is nil if a repetition
	// does no harm.
	Once *Cache
}

// An Answer executes a call and encodes its results. An error makes the reply SYSTEM_ERR and discards
// the results; ErrNoReply suppresses the reply.
type Answer func(ctx context.Context, results *xdr.Encoder) error

// ErrNoReply is returned by an Answer that failed because the server ends. The client repeats the call,
// and the next server answers it.
var ErrNoReply = errors.New("no reply")

// Null is procedure 0 of every program. It does nothing: clients measure the round trip with it, and
// check that the program is served.
var Null = &Procedure{
	Name:   "NULL",
	Decode: func(context.Context, *Call) (Answer, error) { return answerNothing, nil },
}

// answerNothing is the Answer of Null: empty results.
func answerNothing(context.Context, *xdr.Encoder) error { return nil }
