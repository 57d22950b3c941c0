package nfsclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/lab/xdr"
)

// A Stream is FILE_SYNC WRITEs of one file, in order, over a connection of its own, by one
// thread that blocks in the system: it is there to measure servers, and costs little but the
// copy into the socket. Nothing is sent twice; whatever goes wrong is its end.
type Stream struct {
	Addr     string // host:port of NFS
	Handle   Handle
	Size     int64  // bytes to write, a multiple of the block's
	Block    []byte // the bytes of every WRITE; a multiple of 4 of them
	InFlight int    // WRITEs that are not answered, at most
}

// Stream returns a stream that begins at the file's first byte.
func (f *File) Stream(block []byte, inFlight int, size int64) Stream {
	return Stream{Addr: f.d.addr, Handle: f.handle, Size: size, Block: block, InFlight: inFlight}
}

// Commit makes the server keep what was written UNSTABLE, or what it says it has.
func (f *File) Commit(ctx context.Context) error {
	_, err := f.d.commitFile(ctx, f.handle)
	return wrapError(err, f.name)
}

// Write writes all of it.
func (s Stream) Write(ctx context.Context) error {
	file, err := dialBlocking(ctx, s.Addr)
	if err != nil {
		return err
	}
	defer file.Close()
	fd := int(file.Fd())
	stop := context.AfterFunc(ctx, func() { _ = unix.Shutdown(fd, unix.SHUT_RDWR) })
	defer stop()
	w := streamWriter{Stream: s, fd: fd, xid: lastXID.Add(uint32(s.Size / int64(len(s.Block)))), replies: replyReader{fd: fd}}
	w.encodeHead()
	if err := w.sendAllBlocks(); err != nil {
		return causeOr(ctx, fmt.Errorf("stream at %d: %w", w.sent, err))
	}
	return nil
}

// dialBlocking connects from a privileged port where that may be used, and returns the
// socket as one that the caller's thread waits for.
func dialBlocking(ctx context.Context, addr string) (*os.File, error) {
	conn, err := dialTCP(ctx, addr, 0)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("connection to %s is not TCP", addr)
	}
	return tcp.File()
}

// streamWriter is a Stream under way.
type streamWriter struct {
	Stream
	fd      int
	xid     uint32 // of the next WRITE
	head    []byte // record mark, call and arguments of a WRITE
	off     int    // of the file's offset in head
	sent    int64
	open    int // WRITEs that are not answered
	replies replyReader
}

// xidOff is where the xid stands in head: behind the record mark.
const xidOff = 4

// encodeHead prepares what all WRITEs begin with.
func (w *streamWriter) encodeHead() {
	e := xdr.Encoder{B: make([]byte, 4, 256)}
	call := xdr.Call{Prog: progNFS, Vers: versNFS, Proc: procWrite, Flavor: xdr.AuthSys, Machine: "stream"}
	call.Append(&e)
	e.Opaque([]byte(w.Handle))
	w.off = len(e.B)
	e.Uint64(0)
	e.Uint32(uint32(len(w.Block)))
	e.Uint32(fileSync)
	e.Uint32(uint32(len(w.Block)))
	mark := xdr.Mark(len(e.B) - len(mark{}) + len(w.Block))
	copy(e.B, mark[:])
	w.head = e.B
}

type mark = [4]byte

func (w *streamWriter) sendAllBlocks() error {
	for w.sent < w.Size || w.open > 0 {
		for w.open < w.InFlight && w.sent < w.Size {
			if err := w.sendBlock(); err != nil {
				return err
			}
		}
		if err := w.receiveReply(); err != nil {
			return err
		}
	}
	return nil
}

func (w *streamWriter) sendBlock() error {
	binary.BigEndian.PutUint32(w.head[xidOff:], w.xid)
	binary.BigEndian.PutUint64(w.head[w.off:], uint64(w.sent))
	if err := sendAll(w.fd, w.head, w.Block); err != nil {
		return err
	}
	w.xid++
	w.open++
	w.sent += int64(len(w.Block))
	return nil
}

// sendAll sends head and block in as few calls as it takes.
func sendAll(fd int, head, block []byte) error {
	parts := [][]byte{head, block}
	for len(parts) > 0 {
		n, err := unix.SendmsgBuffers(fd, parts, nil, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("sendmsg", err)
		}
		for len(parts) > 0 && n >= len(parts[0]) {
			n -= len(parts[0])
			parts = parts[1:]
		}
		if len(parts) > 0 {
			parts[0] = parts[0][n:]
		}
	}
	return nil
}

// receiveReply takes one answer.
func (w *streamWriter) receiveReply() error {
	msg, err := w.replies.nextRecord()
	if err != nil {
		return err
	}
	d := xdr.NewDecoder(msg)
	if _, err := xdr.ReadReply(d); err != nil {
		return err
	}
	if s := Status(d.Uint32()); s != OK {
		return &StatusError{Proc: procNames[procWrite], Status: s}
	}
	readWcc(d)
	count, committed := d.Uint32(), d.Uint32()
	_ = d.Fixed(writeVerf)
	if err := d.End(); err != nil {
		return err
	}
	if int(count) != len(w.Block) || committed != fileSync {
		return fmt.Errorf("WRITE: %d of %d bytes, stable_how %d", count, len(w.Block), committed)
	}
	w.open--
	return nil
}

// replyReader reads records of one fragment, as every server sends short replies.
type replyReader struct {
	fd   int
	buf  [4 << 10]byte
	r, n int
}

// nextRecord returns the next record; it is good until the next call.
func (r *replyReader) nextRecord() ([]byte, error) {
	var m mark
	if err := r.fillBuffer(len(m)); err != nil {
		return nil, err
	}
	copy(m[:], r.buf[r.r:])
	size := int(binary.BigEndian.Uint32(m[:]) &^ (1 << 31))
	if size > len(r.buf)-len(m) {
		return nil, fmt.Errorf("reply of %d bytes", size)
	}
	if err := r.fillBuffer(len(m) + size); err != nil {
		return nil, err
	}
	msg := r.buf[r.r+len(m) : r.r+len(m)+size]
	r.r += len(m) + size
	return msg, nil
}

// fillBuffer waits until n bytes are there.
func (r *replyReader) fillBuffer(n int) error {
	if r.n-r.r < n && r.r > 0 {
		r.n = copy(r.buf[:], r.buf[r.r:r.n])
		r.r = 0
	}
	for r.n-r.r < n {
		got, err := unix.Read(r.fd, r.buf[r.n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("read", err)
		case got == 0:
			return io.ErrUnexpectedEOF
		default:
			r.n += got
		}
	}
	return nil
}
