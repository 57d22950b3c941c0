package testboot

import "bytes"

// maxMessage is the limit of an agent's message, in bytes: the answer of a guest with some thousand
// network interfaces. Longer messages are skipped.
const maxMessage = 1 << 20

// A message is a line from an agent. delimited reports that a byte 0xFF preceded it: it answers
// guest-sync-delimited, and earlier data is ignored.
type message struct {
	text      []byte
	delimited bool
}

// An inbox cuts what a guest sends into messages. It keeps no more than maxMessage of it.
type inbox struct {
	line      []byte
	delimited bool
	over      bool // the line is too long
}

// take returns the messages that end in p.
func (b *inbox) take(p []byte) (all []message) {
	const sentinel = 0xff
	for _, c := range p {
		switch {
		case c == sentinel:
			*b = inbox{line: b.line[:0], delimited: true}
		case c == '\n':
			if len(b.line) > 0 && !b.over {
				all = append(all, message{bytes.Clone(b.line), b.delimited})
			}
			*b = inbox{line: b.line[:0]}
		case len(b.line) == maxMessage:
			b.over = true
		default:
			b.line = append(b.line, c)
		}
	}
	return all
}
