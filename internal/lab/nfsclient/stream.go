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

// A Stream writes one file sequentially with FILE_SYNC, on a separate connection, in one thread with
// blocking calls. It measures servers: its cost is little more than the copy to the socket. Nothing is
// sent twice; the first error ends it.
type Stream struct {
	Addr     string // host:port of NFS
	Handle   Handle // handle of the file
	Size     int64  // number of bytes to write; a multiple of len(Block)
	Block    []byte // data of every WRITE; a multiple of 4 bytes
	InFlight int    // most WRITEs without a reply
}

// Stream returns a stream that begins at the first byte of the file.
func (f *File) Stream(block []byte, inFlight int, size int64) Stream {
	return Stream{Addr: f.d.addr, Handle: f.handle, Size: size, Block: block, InFlight: inFlight}
}

// Commit makes a COMMIT of the whole file.
func (f *File) Commit(ctx context.Context) error {
	_, err := f.d.commitFile(ctx, f.handle)
	return wrapError(err, f.name)
}

// Write sends all blocks and waits for the replies. If ctx ends, it shuts the connection down.
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

// dialBlocking connects from a privileged port, if permitted, and returns the socket in blocking mode.
// The caller closes it.
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

// A streamWriter is the state of a Stream while it writes.
type streamWriter struct {
	Stream
	fd      int         // socket in blocking mode
	xid     uint32      // xid of the next WRITE
	head    []byte      // record mark, RPC header and arguments of a WRITE, reused for each
	off     int         // position of the file offset in head
	sent    int64       // number of bytes sent
	open    int         // number of WRITEs without a reply
	replies replyReader // reader of the replies
}

// xidOff is the position of the xid in head, after the record mark.
const xidOff = 4

// encodeHead encodes the head that all WRITEs share.
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

// mark is a record mark (RFC 5531 section 11)
type mark = [4]byte

// sendAllBlocks keeps InFlight WRITEs in flight until all are answered.
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

// sendBlock sends one WRITE.
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

// sendAll sends head and block completely, with as few system calls as possible.
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

// receiveReply reads one reply and checks status, count and stability.
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

// A replyReader reads records of one fragment from a socket. Servers send short replies in one
// fragment.
type replyReader struct {
	fd   int           // socket in blocking mode
	buf  [4 << 10]byte // received bytes; limits the size of a reply
	r, n int           // buf[r:n] is received and not consumed
}

// nextRecord returns the next record, valid until the next call.
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

// fillBuffer reads until n bytes are buffered.
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
