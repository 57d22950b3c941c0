package nfc

import (
	"encoding/binary"
	"slices"
)

// classicSize is the size of a classic message: the type, a body, zeros.
const classicSize = 264

// Types of classic messages.
const (
	classicComplete   = 4 // from the host during the handshake: refused
	classicParams     = 33
	classicParamsAck  = 36
	classicTag        = 43
	classicVersion    = 51
	classicAIO        = 52
	classicConnection = 54
	classicFeatures   = 55
)

const (
	// ownVersion is what VMware's library of 8.0.2 says. Hosts answer with theirs: 11 (8.0),
	// 9 (7.0.3).
	ownVersion = 11

	// leastVersion is the first with connection data and AIO.
	leastVersion = 3

	// features announces "interruption" and "switch", as VMware's library does.
	features = 3

	// client and operation name us in the host's log.
	client    = "decamp"
	operation = "nbdmode"

	ackOffset = 16 // of the word in the parameters' reply that says a version message is known
)

var le = binary.LittleEndian

// classicMessage returns a message of that type with words from offset 4 on.
func classicMessage(kind uint32, words ...uint32) []byte {
	b := make([]byte, classicSize)
	le.PutUint32(b, kind)
	for i, w := range words {
		le.PutUint32(b[4+4*i:], w)
	}
	return b
}

// tagMessage repeats the tag of the dialogue.
func tagMessage(tag string) []byte {
	b := classicMessage(classicTag)
	copy(b[4:], tag)
	return b
}

// connectionMessage names us. The texts stand behind the 264 bytes, without an end.
func connectionMessage(client, operation string) []byte {
	b := classicMessage(classicConnection, uint32(len(client)), uint32(len(operation)))
	return slices.Concat(b, []byte(client), []byte(operation))
}
