package nbd

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
)

// A message is one simple reply or one chunk of a structured reply.
type message struct {
	head    [32]byte // beginning of the message
	headLen int      // length of head in bytes
	data    []byte   // rest of the message; may be nil
	done    func()   // called once, when data is not used any more
}

// A sendQueue sends messages over one connection. The goroutine that finds the queue idle sends its
// message, and then all messages that others add meanwhile. It is safe for concurrent use.
type sendQueue struct {
	conn  net.Conn
	stall time.Duration // limit for sending one batch
	fail  func(error)   // called after the first error

	mu      sync.Mutex // guards the fields below
	waiting []*message // messages in their order
	sending bool       // a goroutine sends
	failed  bool       // messages are discarded

	// Memory of the goroutine that sends, to be used again.
	spare []*message
	parts net.Buffers
}

// maxBatch is the size in bytes after which a batch ends. A slow client must read so much within
// Limits.Stall.
const maxBatch = 1 << 20

// send sends m, or adds it to the queue if another goroutine sends. It discards m if the connection has
// failed.
func (q *sendQueue) send(m *message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, m)
	if q.sending {
		return
	}
	q.sending = true
	for len(q.waiting) > 0 {
		taken, failed := q.waiting, q.failed
		q.waiting = q.spare[:0]
		q.mu.Unlock()
		if !failed {
			failed = !q.sendAll(taken)
		} else {
			finishAll(taken)
		}
		clear(taken)
		q.mu.Lock()
		q.spare, q.failed = taken, failed
	}
	q.sending = false
}

// sendAll sends messages in batches. It returns false after an error.
func (q *sendQueue) sendAll(messages []*message) bool {
	for len(messages) > 0 {
		size, n := 0, 0
		for n < len(messages) && (n == 0 || size < maxBatch) {
			size += messages[n].headLen + len(messages[n].data)
			n++
		}
		err := q.sendBatch(messages[:n])
		finishAll(messages[:n])
		messages = messages[n:]
		if err != nil {
			q.fail(err)
			finishAll(messages)
			return false
		}
	}
	return true
}

// sendBatch sends messages with one system call, if possible.
func (q *sendQueue) sendBatch(batch []*message) error {
	q.parts = q.parts[:0]
	for _, m := range batch {
		q.parts = append(q.parts, m.head[:m.headLen])
		if len(m.data) > 0 {
			q.parts = append(q.parts, m.data)
		}
	}
	if err := q.conn.SetWriteDeadline(time.Now().Add(q.stall)); err != nil {
		return err
	}
	unsent := q.parts
	_, err := unsent.WriteTo(q.conn)
	clear(q.parts)
	return err
}

// finishAll calls done of messages that are not used any more.
func finishAll(messages []*message) {
	for _, m := range messages {
		m.done()
	}
}

// setSimple makes m a simple reply.
func (m *message) setSimple(cookie uint64, code uint32) {
	m.addUint32(replyMagic)
	m.addUint32(code)
	m.addUint64(cookie)
}

// setChunk makes m a chunk of a structured reply with length bytes after this head. last is set for the
// end of the reply.
func (m *message) setChunk(cookie uint64, kind uint16, length uint32, last bool) {
	m.addUint32(chunkMagic)
	if last {
		m.addUint16(chunkDone)
	} else {
		m.addUint16(0)
	}
	m.addUint16(kind)
	m.addUint64(cookie)
	m.addUint32(length)
}

// addUint16 appends n to the head.
func (m *message) addUint16(n uint16) {
	binary.BigEndian.PutUint16(m.head[m.headLen:], n)
	m.headLen += 2
}

// addUint32 appends n to the head.
func (m *message) addUint32(n uint32) {
	binary.BigEndian.PutUint32(m.head[m.headLen:], n)
	m.headLen += 4
}

// addUint64 appends n to the head.
func (m *message) addUint64(n uint64) {
	binary.BigEndian.PutUint64(m.head[m.headLen:], n)
	m.headLen += 8
}
