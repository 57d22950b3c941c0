package nbd

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/decamp/decamp/internal/fault"
)

const (
	maxOption  = 16 << 10 // largest accepted option in bytes
	maxOptions = 256      // largest number of options in a handshake
)

// A handshake negotiates the export and the format of replies with a client.
type handshake struct {
	exports []*export
	tls     *tls.Config // TLS must be started if it is not nil

	conn     net.Conn
	in       *bufio.Reader // reads conn
	secure   bool          // TLS was started
	noZeroes bool          // the client accepts the description of an export without padding

	structured bool    // the client accepts structured replies
	described  *export // export with the context base:allocation; nil if the client did not select it
	chosen     *export // export that the client selected; nil until then
}

// errAborted is returned after an ABORT.
var errAborted = errors.New("the client has ended the handshake")

// negotiate answers options until one ends the handshake.
func (h *handshake) negotiate(ctx context.Context) error {
	if err := h.sendParts([]byte(serverMagic), be16(fixedNewstyle|noZeroes)); err != nil {
		return err
	}
	flags, err := h.readUint32()
	if err != nil {
		return err
	}
	if flags&^(fixedNewstyle|noZeroes) != 0 {
		return fault.New(fault.Corrupt, "the client has unknown flags: %#x", flags)
	}
	h.noZeroes = flags&noZeroes != 0
	for range maxOptions {
		if err := h.answerOption(ctx); err != nil || h.chosen != nil {
			return err
		}
	}
	return fault.New(fault.Corrupt, "more than %d NBD options", maxOptions)
}

// answerOption reads and answers one option.
func (h *handshake) answerOption(ctx context.Context) error {
	var head [16]byte
	if _, err := io.ReadFull(h.in, head[:]); err != nil {
		return err
	}
	option, length := binary.BigEndian.Uint32(head[8:]), binary.BigEndian.Uint32(head[12:])
	if magic := binary.BigEndian.Uint64(head[:]); magic != optionMagic || length > maxOption {
		return fault.New(fault.Corrupt, "an NBD option with magic number %#x and %d bytes", magic, length)
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(h.in, data); err != nil {
		return unexpectedEnd(err)
	}
	switch {
	case option == optAbort:
		return errors.Join(errAborted, h.sendReply(option, repAck))
	case option == optStartTLS:
		return h.startTLS(ctx, data)
	case option == optExportName && (h.tls == nil || h.secure):
		return h.selectByName(string(data))
	case option == optExportName:
		return fault.New(fault.Denied, "the client did not start TLS") // this option has no error reply
	case h.tls != nil && !h.secure:
		return h.sendReply(option, repNeedsTLS, []byte("start TLS first"))
	case option == optList:
		return h.listExports(data)
	case option == optInfo || option == optGo:
		return h.describeExport(option, data)
	case option == optStructured:
		return h.acceptStructured(data)
	case option == optListContext || option == optSetContext:
		return h.answerContexts(option, data)
	}
	return h.sendReply(option, repUnsupported)
}

// unexpectedEnd returns io.ErrUnexpectedEOF for io.EOF, and other errors as they are.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// startTLS continues the connection with TLS. Bytes that the client has sent too early are refused,
// because another machine could have inserted them.
func (h *handshake) startTLS(ctx context.Context, data []byte) error {
	switch {
	case h.tls == nil:
		return h.sendReply(optStartTLS, repUnsupported, []byte("the server has no certificate"))
	case h.secure || len(data) > 0:
		return h.sendReply(optStartTLS, repInvalid)
	case h.in.Buffered() > 0:
		return fault.New(fault.Corrupt, "the client has sent data before TLS was started")
	}
	if err := h.sendReply(optStartTLS, repAck); err != nil {
		return err
	}
	conn := tls.Server(h.conn, h.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		return fault.New(fault.Denied, "TLS: %w", err)
	}
	h.conn, h.secure = conn, true
	h.in.Reset(conn)
	return nil
}

// findExport returns the export of that name, nil if it does not exist.
func (h *handshake) findExport(name string) *export {
	for _, x := range h.exports {
		if x.Name == name {
			return x
		}
	}
	if name == "" {
		return h.exports[0]
	}
	return nil
}

// selectByName ends the handshake with an export.
func (h *handshake) selectByName(name string) error {
	x := h.findExport(name)
	if x == nil {
		return fault.New(fault.NotFound, "the client requests the export %.100q, which does not exist", name)
	}
	end := [][]byte{be64(uint64(x.size)), be16(x.transmissionFlags(h.structured))}
	if !h.noZeroes {
		end = append(end, make([]byte, 124))
	}
	h.selectExport(x)
	return h.sendParts(end...)
}

// selectExport ends the handshake. A context that was selected for another export is not valid.
func (h *handshake) selectExport(x *export) {
	h.chosen = x
	if h.described != x {
		h.described = nil
	}
}

// listExports sends the names of all exports.
func (h *handshake) listExports(data []byte) error {
	if len(data) > 0 {
		return h.sendReply(optList, repInvalid)
	}
	for _, x := range h.exports {
		if err := h.sendReply(optList, repServer, be32(uint32(len(x.Name))), []byte(x.Name), []byte(x.Description)); err != nil {
			return err
		}
	}
	return h.sendReply(optList, repAck)
}

// describeExport answers INFO and GO.
func (h *handshake) describeExport(option uint32, data []byte) error {
	p := parser{data}
	name := p.takeString()
	count := p.takeUint16()
	if p.rest == nil || len(p.rest) != 2*int(count) {
		return h.sendReply(option, repInvalid)
	}
	x := h.findExport(name)
	if x == nil {
		return h.sendReply(option, repUnknown, []byte("the export does not exist"))
	}
	var requested []uint16
	for range count {
		requested = append(requested, p.takeUint16())
	}
	infos := [][]byte{slices.Concat(be16(infoExport), be64(uint64(x.size)), be16(x.transmissionFlags(h.structured)))}
	if slices.Contains(requested, infoName) {
		infos = append(infos, append(be16(infoName), x.Name...))
	}
	if slices.Contains(requested, infoDescription) && x.Description != "" {
		infos = append(infos, append(be16(infoDescription), x.Description...))
	}
	if slices.Contains(requested, infoBlockSize) {
		const least, preferred = 1, 4096
		infos = append(infos, slices.Concat(be16(infoBlockSize), be32(least), be32(preferred), be32(maxServed)))
	}
	for _, info := range infos {
		if err := h.sendReply(option, repInfo, info); err != nil {
			return err
		}
	}
	if option == optGo {
		h.selectExport(x)
	}
	return h.sendReply(option, repAck)
}

// acceptStructured accepts structured replies.
func (h *handshake) acceptStructured(data []byte) error {
	if len(data) > 0 {
		return h.sendReply(optStructured, repInvalid)
	}
	h.structured = true
	return h.sendReply(optStructured, repAck)
}

// answerContexts lists or selects contexts of an export.
func (h *handshake) answerContexts(option uint32, data []byte) error {
	if option == optSetContext {
		h.described = nil
	}
	p := parser{data}
	name := p.takeString()
	count := p.takeUint32()
	matches := option == optListContext && count == 0
	for range min(count, maxOption) {
		query := p.takeString()
		matches = matches || query == contextAllocation || option == optListContext && query == "base:"
	}
	if p.rest == nil || len(p.rest) > 0 || !h.structured {
		return h.sendReply(option, repInvalid)
	}
	x := h.findExport(name)
	if x == nil {
		return h.sendReply(option, repUnknown, []byte("the export does not exist"))
	}
	if matches {
		if err := h.sendReply(option, repContext, be32(contextID), []byte(contextAllocation)); err != nil {
			return err
		}
		if option == optSetContext {
			h.described = x
		}
	}
	return h.sendReply(option, repAck)
}

// sendReply sends a reply of that kind to an option.
func (h *handshake) sendReply(option, kind uint32, data ...[]byte) error {
	all := slices.Concat(data...)
	return h.sendParts(be64(answerMagic), be32(option), be32(kind), be32(uint32(len(all))), all)
}

// sendParts sends one message.
func (h *handshake) sendParts(parts ...[]byte) error {
	_, err := h.conn.Write(slices.Concat(parts...))
	return err
}

// readUint32 reads a number.
func (h *handshake) readUint32() (uint32, error) {
	var p [4]byte
	_, err := io.ReadFull(h.in, p[:])
	return binary.BigEndian.Uint32(p[:]), err
}

// A parser takes values from the data of an option. rest is nil after a value that was too short.
type parser struct {
	rest []byte // data that was not taken yet
}

// takeBytes returns the next n bytes, nil if there are fewer.
func (p *parser) takeBytes(n uint32) []byte {
	if uint64(n) > uint64(len(p.rest)) {
		p.rest = nil
		return nil
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

// takeUint16 returns the next two bytes as a number, 0 if there are fewer.
func (p *parser) takeUint16() uint16 {
	if b := p.takeBytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

// takeUint32 returns the next four bytes as a number, 0 if there are fewer.
func (p *parser) takeUint32() uint32 {
	if b := p.takeBytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// takeString returns the next string, which begins with its length.
func (p *parser) takeString() string { return string(p.takeBytes(p.takeUint32())) }

// be16 returns n in big-endian order.
func be16(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

// be32 returns n in big-endian order.
func be32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// be64 returns n in big-endian order.
func be64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
