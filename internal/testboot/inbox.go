package testboot

import "bytes"

// maxMessage bounds one message of an agent's, in bytes: what a guest with some thousand network
// interfaces tells of them. A longer one is passed over.
const maxMessage = 1 << 20

// A message is a line that an agent sent. delimited says that a byte 0xFF came before it: it answers
// guest-sync-delimited, and what was sent up to there is of no interest any more.
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
