package nfchost

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Classic messages are 264 bytes: a type, a body, zeros.
const (
	classicSize = 264 // size of a message in bytes

	classicComplete = 4  // end of the session; from a host during the handshake: refused
	classicParams   = 33 // SESSION_PARAMS of the client
	classicParamsOK = 36 // acknowledgment of SESSION_PARAMS
	classicTag      = 43 // tag of THUMBPRINT_SHA2
	classicVersion  = 51 // version of the NFC library
	classicAIO      = 52 // request to continue with AIO messages
	classicClient   = 54 // names of client and operation, whose text follows the message
	classicFeatures = 55 // features of the client; ignored

	maxName    = 256 // longest name of a client or an operation, in bytes
	minVersion = 3   // lowest library version with AIO
)

// errRefused ends a connection whose handshake was refused.
var errRefused = errors.New("handshake refused")

// runHandshake exchanges classic messages until the client requests AIO.
func (c *conn) runHandshake() error {
	if f := c.nextFault(Op{Name: OpHandshake}); f != nil {
		if err := c.applyEarly(f); err != nil {
			return err
		}
		if f.isKind(FaultRefuse) {
			return c.refuseHandshake()
		}
	}
	h := &handshake{conn: c}
	for !h.aio {
		m, err := c.in.startMessage(classicSize)
		if err != nil {
			return err
		}
		if err := h.handleMessage(binary.LittleEndian.Uint32(m), m[4:]); err != nil {
			return err
		}
	}
	return nil
}

// A handshake records the messages received so far.
type handshake struct {
	*conn
	params, version, client bool // whether SESSION_PARAMS, VERSION and the client's names have arrived
	aio                     bool // whether the client has requested AIO
}

// handleMessage processes one classic message. Unknown types are refused.
func (h *handshake) handleMessage(kind uint32, body []byte) error {
	switch kind {
	case classicTag:
		return h.handleTag(body)
	case classicParams:
		h.params = true
		if !h.rules.LateAck {
			return h.acknowledge()
		}
	case classicVersion:
		return h.handleVersion()
	case classicClient:
		return h.handleClient(body)
	case classicFeatures:
	case classicAIO:
		if !h.params || !h.version || !h.client || h.rules.LibVersion < minVersion {
			return h.refuseHandshake()
		}
		h.aio = true
		return h.sendClassic(classicAIO, func([]byte) {})
	default:
		return errors.Join(fmt.Errorf("classic message %d", kind), h.refuseHandshake())
	}
	return nil
}

// handleTag checks the tag of THUMBPRINT_SHA2. Hosts without that command refuse the message; whether a
// host compares the tags is not known.
func (h *handshake) handleTag(body []byte) error {
	tag, _, _ := bytes.Cut(body, []byte{0})
	if h.rules.NoSHA256 || !h.sha256 || string(tag) != h.tag {
		return h.refuseHandshake()
	}
	return nil
}

// handleVersion answers VERSION, which must follow SESSION_PARAMS. With Rules.LateAck, SESSION_PARAMS
// is acknowledged only now.
func (h *handshake) handleVersion() error {
	if !h.params {
		return h.refuseHandshake()
	}
	h.version = true
	if h.rules.LateAck {
		if err := h.acknowledge(); err != nil {
			return err
		}
	}
	return h.sendClassic(classicVersion, func(p []byte) { binary.LittleEndian.PutUint32(p[4:], h.rules.LibVersion) })
}

// acknowledge answers SESSION_PARAMS. The word at 16 seems to announce support of VERSION.
func (h *handshake) acknowledge() error {
	return h.sendClassic(classicParamsOK, func(p []byte) {
		if !h.rules.NoVersion {
			p[16] = 1
		}
	})
}

// handleClient reads the two names that follow the message.
func (h *handshake) handleClient(body []byte) error {
	name, operation := binary.LittleEndian.Uint32(body), binary.LittleEndian.Uint32(body[4:])
	if name == 0 || name > maxName || operation > maxName {
		return h.refuseHandshake()
	}
	if _, err := h.in.readRest(int(name)); err != nil {
		return err
	}
	if _, err := h.in.readRest(int(operation)); err != nil {
		return err
	}
	h.client = true
	return nil
}

// sendClassic sends a message of a type. fill writes the body into the message of classicSize bytes.
func (c *conn) sendClassic(kind uint32, fill func(p []byte)) error {
	p := make([]byte, classicSize)
	binary.LittleEndian.PutUint32(p, kind)
	fill(p)
	return c.out.send(p)
}

// refuseHandshake answers with type 4 and returns errRefused.
func (c *conn) refuseHandshake() error {
	return errors.Join(errRefused, c.sendClassic(classicComplete, func([]byte) {}))
}
