package testboot

import "bytes"

// maxMessage is the limit of an agent's message, in bytes: the answer of a guest with
// some thousand network interfaces. Longer messages are skipped.
const maxMessage = 1 << 20

// A message is a line from an agent.
type message struct {
	text      []byte // JSON without the line end
	delimited bool   // the byte 0xFF preceded it: it answers guest-sync-delimited, and earlier data is invalid
}

// A messageSplitter splits the data of a guest into messages. It buffers at most
// maxMessage bytes.
type messageSplitter struct {
	line      []byte // incomplete line
	delimited bool   // the byte 0xFF preceded the line
	over      bool   // the line is too long and will be skipped
}

// split returns the messages that end within p.
func (b *messageSplitter) split(p []byte) (all []message) {
	const sentinel = 0xff
	for _, c := range p {
		switch {
		case c == sentinel:
			*b = messageSplitter{line: b.line[:0], delimited: true}
		case c == '\n':
			if len(b.line) > 0 && !b.over {
				all = append(all, message{bytes.Clone(b.line), b.delimited})
			}
			*b = messageSplitter{line: b.line[:0]}
		case len(b.line) == maxMessage:
			b.over = true
		default:
			b.line = append(b.line, c)
		}
	}
	return all
}
