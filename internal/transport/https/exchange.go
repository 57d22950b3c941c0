package https

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// mostDrained is how much of an unwanted body is read to keep its connection.
const mostDrained = 64 << 10

// exchange is one request and its answer on a conn. It is used by one goroutine.
type exchange struct {
	conn *conn
	turn <-chan struct{} // closed when the answer before this one was read; nil for the first
	done chan struct{}   // closed by finish: the next exchange's turn

	stop func() bool // ends the watch on the context; nil before the turn
	left int64       // bytes of the body still to be read
	last bool        // the server closes the connection after this answer
}

// readAnswer waits for the exchange's turn and reads the head of its answer. After an error
// the exchange is over.
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

// readAnswerHead reads the head of the answer. A connection that was used before and ends without a
// byte of this answer was closed by the host while idle.
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

// awaitTurn waits until the answers before this one were read. If ctx ends first the
// neighbour whose answer is being read is left alone: the connection is closed after it.
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

// Read reads from the body, straight into p where p is larger than a TLS record.
func (x *exchange) Read(p []byte) (int, error) {
	if x.left == 0 {
		return 0, io.EOF
	}
	x.conn.wire.expect = x.left
	n, err := x.conn.br.Read(p[:min(int64(len(p)), x.left)])
	x.left -= int64(n)
	switch {
	case n > 0:
		return n, nil // an error will come again
	case err == io.EOF:
		return 0, io.ErrUnexpectedEOF
	}
	return 0, err
}

// explainLoss explains why reading failed: because ctx ended, because the connection had been
// closed before, or because of err itself.
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

// drain reads what is left of an unwanted body, if it is short, and finishes.
func (x *exchange) drain() {
	if !x.last && x.left <= mostDrained {
		_, _ = io.Copy(io.Discard, x) // what stays unread makes finish close the connection
	}
	x.finish()
}

// finish ends the exchange. The connection is used again if the answer was read whole.
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

// abort ends the exchange and its connection.
func (x *exchange) abort() {
	x.stop()
	x.conn.pool.dropConn(x.conn)
}

// badAnswer is an answer that is not what was asked for. Its bytes are never used.
func badAnswer(format string, args ...any) error {
	return fault.New(fault.Corrupt, "answer: "+format, args...).
		WithHint("something between here and the host changes answers (a proxy, an inspecting firewall?); connect to the host directly")
}
