package nfc

import (
	"encoding/binary"
	"slices"
)

// classicSize is the size of a classic message in bytes: type, body, and zeros.
const classicSize = 264

// Types of classic messages.
const (
	classicComplete   = 4  // end of the connection; from the host during the handshake, a refusal
	classicParams     = 33 // starts the exchange of parameters
	classicParamsAck  = 36 // reply to classicParams
	classicTag        = 43 // repeats the tag of the dialogue with authd
	classicVersion    = 51 // version of NFC, from both sides
	classicAIO        = 52 // switches to framed requests; the host confirms it
	classicConnection = 54 // names of client and operation
	classicFeatures   = 55 // announces our features
)

const (
	// ownVersion is the version that VMware's library of 8.0.2 announces. Hosts answer with their own: 11
	// (8.0), 9 (7.0.3).
	ownVersion = 11

	// leastVersion is the first version with connection data and AIO.
	leastVersion = 3

	// features announces "interruption" and "switch", as VMware's library does.
	features = 3

	// name of this program in the host's log
	client    = "decamp"
	operation = "nbdmode" // kind of access in the host's log

	ackOffset = 16 // offset in classicParamsAck of a flag: the host knows classicVersion
)

// le is the byte order of all integers in NFC.
var le = binary.LittleEndian

// classicMessage returns a message of that type, with words from byte 4 on.
func classicMessage(kind uint32, words ...uint32) []byte {
	b := make([]byte, classicSize)
	le.PutUint32(b, kind)
	for i, w := range words {
		le.PutUint32(b[4+4*i:], w)
	}
	return b
}

// tagMessage returns the message that repeats the tag of the dialogue.
func tagMessage(tag string) []byte {
	b := classicMessage(classicTag)
	copy(b[4:], tag)
	return b
}

// connectionMessage returns the message with our names. The texts follow the 264 bytes, without a
// terminator.
func connectionMessage(client, operation string) []byte {
	b := classicMessage(classicConnection, uint32(len(client)), uint32(len(operation)))
	return slices.Concat(b, []byte(client), []byte(operation))
}
