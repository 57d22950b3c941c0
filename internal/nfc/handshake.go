package nfc

import (
	"fmt"
	"io"

	"github.com/decamp/decamp/internal/fault"
)

// runHandshake leads from the first byte of NFC to AIO, and returns the host's version. Each message is
// one write: over TLS a host reads one message from each record.
func runHandshake(c io.ReadWriter, tagged bool) (version uint32, err error) {
	// Hosts of 7.0.3 answer the parameters only after the version has arrived, hosts of 8 at
	// once. Therefore all messages are sent before an answer is read. Hosts without
	// THUMBPRINT_SHA2 close the connection at the tag.
	var hello [][]byte
	if tagged {
		hello = append(hello, tagMessage(tag))
	}
	hello = append(hello, classicMessage(classicParams), classicMessage(classicVersion, ownVersion))
	if err := sendMessages(c, hello); err != nil {
		return 0, err
	}
	if version, err = readHello(c); err != nil {
		return 0, err
	}
	err = sendMessages(c, [][]byte{connectionMessage(client, operation), classicMessage(classicFeatures, features), classicMessage(classicAIO)})
	if err != nil {
		return 0, err
	}
	_, err = readClassic(c, classicAIO)
	return version, err
}

// sendMessages sends the messages. A host that refuses one closes the connection without reading the
// rest. Then the host's refusal is returned, and not the write error.
func sendMessages(c io.ReadWriter, messages [][]byte) error {
	for _, m := range messages {
		if _, err := c.Write(m); err != nil {
			if _, said := readClassic(c, classicParamsAck); fault.Is(said, fault.Denied) {
				return said
			}
			return fmt.Errorf("send the handshake: %w", err)
		}
	}
	return nil
}

// readHello reads the reply to the parameters and the host's version. It fails for versions that decamp
// does not support.
func readHello(r io.Reader) (uint32, error) {
	ack, err := readClassic(r, classicParamsAck)
	if err != nil {
		return 0, err
	}
	if le.Uint32(ack[ackOffset:]) == 0 {
		return 0, tooOld("it knows no version message")
	}
	v, err := readClassic(r, classicVersion)
	if err != nil {
		return 0, err
	}
	version := le.Uint32(v[4:])
	if version < leastVersion {
		return version, tooOld(fmt.Sprintf("its NFC has version %d", version))
	}
	return version, nil
}

// tooOld returns the fault for a host without a supported version of NFC.
func tooOld(why string) error {
	return fault.New(fault.Unsupported, "the host is too old for decamp's NFC: %s", why).
		WithHint("use --transport https")
}

// readClassic reads one message. It fails if the message has another type.
func readClassic(r io.Reader, want uint32) ([]byte, error) {
	b := make([]byte, classicSize)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("read handshake message %d: %w", want, noEOF(err))
	}
	switch got := le.Uint32(b); got {
	case want:
		return b, nil
	case classicComplete:
		return nil, fault.New(fault.Denied, "the host ended the NFC handshake where message %d was due", want).
			WithHint("look at the host's hostd or vpxa log; use --transport https meanwhile")
	default:
		return nil, badAnswer("handshake message %d where %d was due", got, want)
	}
}

// noEOF returns io.ErrUnexpectedEOF for io.EOF: the connection must not end at any point of NFC.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
