package https

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// mostDrained is the length of an unwanted body that is read to keep its connection, in bytes.
const mostDrained = 64 << 10

// exchange is one request with its answer on a conn. It is not safe for concurrent use.
type exchange struct {
	conn *conn           // connection that the request was sent on
	turn <-chan struct{} // closed when the answer before this one was read; nil for the first exchange
	done chan struct{}   // closed by finish: the turn of the next exchange

	stop func() bool // stops watching the context; nil before the turn
	left int64       // bytes of the body that were not read yet
	last bool        // the server closes the connection after this answer
}

// readAnswer waits for the turn and reads the head of the answer. After an error the exchange is over.
func (x *exchange) readAnswer(ctx context.Context) (response, error) {
	if err := x.awaitTurn(ctx); err != nil {
		return response{}, err
	}
	begun := time.Now()
	resp, err := x.readAnswerHead()
	if err != nil {
		err = x.explainLoss(ctx, err)
		x.abort()
		return resp, err
	}
	x.conn.pool.reportFirstByte(time.Since(begun))
	x.left = max(resp.length, 0)
	x.last = resp.close || resp.chunked || resp.length < 0
	return resp, nil
}

// readAnswerHead reads the head of the answer. If a connection that was used before ends without a byte
// of this answer, the host closed it while it was idle: errGone.
func (x *exchange) readAnswerHead() (response, error) {
	_, err := x.conn.br.Peek(1)
	if err == nil {
		return readResponse(x.conn.br)
	}
	if x.conn.served > 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
		err = errGone
	}
	return response{}, err
}

// awaitTurn waits until the earlier answers were read. If ctx ends first, the exchange before is not
// disturbed: the connection is closed after it.
func (x *exchange) awaitTurn(ctx context.Context) error {
	if x.turn != nil {
		select {
		case <-x.turn:
		case <-x.conn.gone:
			x.conn.pool.dropConn(x.conn)
			return errGone
		case <-ctx.Done():
			x.conn.pool.abandonAnswer(x.conn)
			return ctx.Err()
		}
	}
	x.stop = context.AfterFunc(ctx, x.conn.closeSocket)
	return nil
}

// Read reads from the body. It reads directly into p if p is larger than a TLS record.
func (x *exchange) Read(p []byte) (int, error) {
	if x.left == 0 {
		return 0, io.EOF
	}
	x.conn.wire.expect = x.left
	n, err := x.conn.br.Read(p[:min(int64(len(p)), x.left)])
	x.left -= int64(n)
	switch {
	case n > 0:
		return n, nil // the next Read returns the error
	case err == io.EOF:
		return 0, io.ErrUnexpectedEOF
	}
	return 0, err
}

// explainLoss returns the reason for a failed read: the end of ctx, a connection that was closed
// before, or err.
func (x *exchange) explainLoss(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errMalformed):
		return badAnswer("%w", err)
	case x.conn.isGone(), err == errGone:
		return errGone
	}
	return fault.New(fault.Transient, "connection to %s: %w", x.conn.pool.host.Addr(), err)
}

// drain reads the rest of an unwanted body, if it is short, and finishes.
func (x *exchange) drain() {
	if !x.last && x.left <= mostDrained {
		_, _ = io.Copy(io.Discard, x) // after an error, finish closes the connection
	}
	x.finish()
}

// finish ends the exchange. The connection is kept if the answer was read completely.
func (x *exchange) finish() {
	if x.left > 0 || x.last || !x.stop() {
		x.abort()
		return
	}
	x.conn.wire.expect = 0
	x.conn.served++
	close(x.done)
	x.conn.pool.release(x.conn)
}

// abort ends the exchange and closes its connection.
func (x *exchange) abort() {
	x.stop()
	x.conn.pool.dropConn(x.conn)
}

// badAnswer returns the fault for an answer that does not match the request. Its bytes are never used.
func badAnswer(format string, args ...any) error {
	return fault.New(fault.Corrupt, "answer: "+format, args...).
		WithHint("a proxy or firewall between this machine and the host may change its answers: connect to the host directly")
}
