package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/decamp/decamp/internal/fault"
)

// A Disk is the disk that Serve serves.
type Disk interface {
	io.ReaderAt
	io.WriterAt
	Size() int64 // bytes
}

const (
	maxServed  = 32 << 20 // largest accepted request in bytes; the protocol recommends this limit to clients
	maxOption  = 4096     // largest accepted option in bytes
	maxOptions = 64       // largest number of options in a handshake
)

// Serve answers the requests of the client on conn until the client disconnects. It returns nil if the
// connection ends between two messages.
func Serve(conn io.ReadWriter, disk Disk) error {
	s := &session{conn: conn, disk: disk}
	serve, err := s.handshake()
	if err == nil && serve {
		err = s.serveRequests()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// A session is the connection to one client.
type session struct {
	conn     io.ReadWriter // connection; the caller of Serve owns it
	disk     Disk          // disk to serve
	noZeroes bool          // the client accepts a description without padding
}

// handshake answers the client's options. serve is false if the client ends the connection.
func (s *session) handshake() (serve bool, err error) {
	if err := s.sendParts([]byte(serverMagic), be16(fixedNewstyle|noZeroes)); err != nil {
		return false, err
	}
	flags, err := s.readBytes(4)
	if err != nil {
		return false, err
	}
	s.noZeroes = binary.BigEndian.Uint32(flags)&noZeroes != 0
	for range maxOptions {
		head, err := s.readBytes(16)
		if err != nil {
			return false, err
		}
		option, length := binary.BigEndian.Uint32(head[8:]), binary.BigEndian.Uint32(head[12:])
		if magic := binary.BigEndian.Uint64(head); magic != optionMagic || length > maxOption {
			return false, fault.New(fault.Corrupt, "an NBD option with magic number %#x and %d bytes", magic, length)
		}
		if _, err := s.readBytes(int(length)); err != nil {
			return false, err
		}
		if done, serve, err := s.answerOption(option); done || err != nil {
			return serve, err
		}
	}
	return false, fault.New(fault.Corrupt, "more than %d NBD options", maxOptions)
}

// answerOption answers one option. done reports that it ends the handshake.
func (s *session) answerOption(option uint32) (done, serve bool, err error) {
	switch option {
	case optExportName:
		end := [][]byte{be64(uint64(s.disk.Size())), be16(hasFlags | sendFlush)}
		if !s.noZeroes {
			end = append(end, make([]byte, 124))
		}
		return true, true, s.sendParts(end...)
	case optInfo, optGo:
		info := append(be16(infoExport), be64(uint64(s.disk.Size()))...)
		err := s.sendReply(option, repInfo, append(info, be16(hasFlags|sendFlush)...))
		if err == nil {
			err = s.sendReply(option, repAck, nil)
		}
		return option == optGo, true, err
	case optAbort:
		return true, false, s.sendReply(option, repAck, nil)
	}
	return false, false, s.sendReply(option, repUnknown, nil)
}

// sendReply sends a reply of that kind to an option.
func (s *session) sendReply(option, kind uint32, data []byte) error {
	return s.sendParts(be64(answerMagic), be32(option), be32(kind), be32(uint32(len(data))), data)
}

// serveRequests answers requests until the client disconnects.
func (s *session) serveRequests() error {
	for {
		c, err := s.readBytes(28)
		if err != nil {
			return err
		}
		kind, off, length := binary.BigEndian.Uint16(c[6:]), binary.BigEndian.Uint64(c[16:]), binary.BigEndian.Uint32(c[24:])
		if magic := binary.BigEndian.Uint32(c); magic != callMagic || length > maxServed {
			return fault.New(fault.Corrupt, "an NBD request with magic number %#x and %d bytes", magic, length)
		}
		if kind == cmdDisconnect {
			return nil
		}
		if err := s.serveRequest(kind, c[8:16], off, int(length)); err != nil {
			return err
		}
	}
}

// serveRequest answers one request. It returns only errors of the connection; errors of the disk go to
// the client.
func (s *session) serveRequest(kind uint16, cookie []byte, off uint64, length int) error {
	var data []byte
	var err error
	if kind == cmdWrite {
		if data, err = s.readBytes(length); err != nil {
			return err
		}
	}
	code := uint32(0)
	size := uint64(s.disk.Size())
	outside := off > size || uint64(length) > size-off
	switch {
	case kind == cmdFlush:
	case kind == cmdRead && !outside:
		data = make([]byte, length)
		_, err = s.disk.ReadAt(data, int64(off))
	case kind == cmdWrite && !outside:
		_, err = s.disk.WriteAt(data, int64(off))
		data = nil
	default:
		code, data = errInval, nil
	}
	if err != nil {
		code, data = errorCode(err), nil
	}
	return s.sendParts(be32(replyMagic), be32(code), cookie, data)
}

// errorCode returns the NBD error number of err. A full image appears as a full disk to the guest.
func errorCode(err error) uint32 {
	if fault.Is(err, fault.Unsupported) || fault.Is(err, fault.Full) {
		return errNoSpc
	}
	return errIO
}

// readBytes returns the next n bytes. It returns io.EOF if the client ended the connection before the
// first of them.
func (s *session) readBytes(n int) ([]byte, error) {
	p := make([]byte, n)
	if _, err := io.ReadFull(s.conn, p); errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("an NBD message is cut short: %w", err)
	} else if err != nil {
		return nil, err
	}
	return p, nil
}

// sendParts sends one message.
func (s *session) sendParts(parts ...[]byte) error {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	_, err := s.conn.Write(out)
	return err
}

// be16 returns n in big-endian order.
func be16(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

// be32 returns n in big-endian order.
func be32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// be64 returns n in big-endian order.
func be64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
