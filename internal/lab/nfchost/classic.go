package nfchost

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Classic messages are 264 bytes: a type, a body, zeros.
const (
	classicSize = 264

	classicComplete = 4 // the end; from a host during the handshake: refused
	classicParams   = 33
	classicParamsOK = 36
	classicTag      = 43
	classicVersion  = 51
	classicAIO      = 52
	classicClient   = 54
	classicFeatures = 55

	maxName    = 256 // of a client or an operation
	minVersion = 3   // below it there is no AIO
)

var errRefused = errors.New("handshake refused")

// handshake speaks classic messages until the client asks for AIO.
func (c *conn) handshake() error {
	if f := c.fault(Op{Name: OpHandshake}); f != nil {
		if err := c.early(f); err != nil {
			return err
		}
		if f.is(FaultRefuse) {
			return c.refuse()
		}
	}
	h := &handshake{conn: c}
	for !h.aio {
		m, err := c.in.message(classicSize)
		if err != nil {
			return err
		}
		if err := h.take(binary.LittleEndian.Uint32(m), m[4:]); err != nil {
			return err
		}
	}
	return nil
}

// handshake is what has come so far.
type handshake struct {
	*conn
	params, version, client bool
	aio                     bool
}

func (h *handshake) take(kind uint32, body []byte) error {
	switch kind {
	case classicTag:
		return h.takeTag(body)
	case classicParams:
		h.params = true
		if !h.rules.LateAck {
			return h.acknowledge()
		}
	case classicVersion:
		return h.takeVersion()
	case classicClient:
		return h.takeClient(body)
	case classicFeatures:
	case classicAIO:
		if !h.params || !h.version || !h.client || h.rules.LibVersion < minVersion {
			return h.refuse()
		}
		h.aio = true
		return h.reply(classicAIO, func([]byte) {})
	default:
		return errors.Join(fmt.Errorf("classic message %d", kind), h.refuse())
	}
	return nil
}

// takeTag wants the tag of THUMBPRINT_SHA2. Hosts that have no such command refuse the
// message as a whole; whether one compares the tags is not known.
func (h *handshake) takeTag(body []byte) error {
	tag, _, _ := bytes.Cut(body, []byte{0})
	if h.rules.NoSHA256 || !h.sha256 || string(tag) != h.tag {
		return h.refuse()
	}
	return nil
}

func (h *handshake) takeVersion() error {
	if !h.params {
		return h.refuse()
	}
	h.version = true
	if h.rules.LateAck {
		if err := h.acknowledge(); err != nil {
			return err
		}
	}
	return h.reply(classicVersion, func(p []byte) { binary.LittleEndian.PutUint32(p[4:], h.rules.LibVersion) })
}

// acknowledge answers SESSION_PARAMS. The word at 16 seems to say that VERSION is understood.
func (h *handshake) acknowledge() error {
	return h.reply(classicParamsOK, func(p []byte) {
		if !h.rules.NoVersion {
			p[16] = 1
		}
	})
}

// takeClient reads the two texts that follow the 264 bytes.
func (h *handshake) takeClient(body []byte) error {
	name, operation := binary.LittleEndian.Uint32(body), binary.LittleEndian.Uint32(body[4:])
	if name == 0 || name > maxName || operation > maxName {
		return h.refuse()
	}
	if _, err := h.in.rest(int(name)); err != nil {
		return err
	}
	if _, err := h.in.rest(int(operation)); err != nil {
		return err
	}
	h.client = true
	return nil
}

func (c *conn) reply(kind uint32, fill func(p []byte)) error {
	p := make([]byte, classicSize)
	binary.LittleEndian.PutUint32(p, kind)
	fill(p)
	return c.out.send(p)
}

// refuse answers with type 4 and ends the connection.
func (c *conn) refuse() error {
	return errors.Join(errRefused, c.reply(classicComplete, func([]byte) {}))
}
