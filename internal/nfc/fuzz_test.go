package nfc

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// answering is a connection that sends these bytes, whatever it is sent, and then ends.
type answering struct {
	net.Conn // for deadlines, which it has none of
	from     *bytes.Reader
}

func (a answering) Read(p []byte) (int, error)  { return a.from.Read(p) }
func (a answering) Write(p []byte) (int, error) { return len(p), nil }

// FuzzReplies lets a host say anything to a read, a map query and a close. A read that
// succeeds has got each byte exactly once; nothing is written outside the buffer.
func FuzzReplies(f *testing.F) {
	whole := fragmentOf(Stored, 0, 512, 512, bytes.Repeat([]byte{1}, 512))
	f.Add(unhex(f, whole))
	f.Add(unhex(f, fragmentOf(Stored, 256, 256, 256, make([]byte, 256))+fragmentOf(SkipZ, 0, 256, 8, unhex(f, "00010000 00000000"))))
	f.Add(unhex(f, fragmentOf(FastLZ, 0, 512, 17, unhex(f, "0341424344 e0fd03 e0e803 044441424344"))))
	f.Add(unhex(f, fragmentOf(Zlib, 0, 512, 17, unhex(f, "78017374 7276711c c523360c 0049cb85 01"))))
	f.Add(unhex(f, "7ada00a1 01000000 10000000 00000000 05000000 00000000 00000000 02000000 6e6f"))
	f.Add(unhex(f, whole+"7ada00a1 0d000000 30000000 01000000 32x00 10000000 00000000 00000000 00000000 03020000"))
	f.Fuzz(func(t *testing.T, reply []byte) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		w := &stallConn{Conn: ours, stall: testStall}
		s := newSession("fuzz", w, answering{ours, bytes.NewReader(reply)})
		d := &Disk{session: s, opts: Options{}.withDefaults(), size: 1 << 20, room: make(chan struct{}, 1)}
		const guard = 64
		room := bytes.Repeat([]byte{0xa5}, guard+512+guard)
		if err := d.ReadAt(t.Context(), room[guard:guard+512:guard+512], 0); err != nil && fault.KindOf(err) == fault.Internal {
			t.Errorf("an error without a kind: %v", err)
		}
		for _, b := range append(room[:guard:guard], room[guard+512:]...) {
			if b != 0xa5 {
				t.Fatal("a byte outside the buffer was written")
			}
		}
		if used, err := d.queryAllocated(0, 16); err == nil {
			for _, r := range used {
				if r.Off < 0 || r.End() > 16*mapChunk {
					t.Fatalf("range %v of 16 chunks", r)
				}
			}
		}
		d.Close()
	})
}

// FuzzDialogue lets a daemon say anything: banner, then lines.
func FuzzDialogue(f *testing.F) {
	f.Add([]byte("220 VMware Authentication Daemon Version 1.10: SSL Required, NFCSSL supported/t, SHA256 supported\r\n"))
	f.Add([]byte("220-\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		line, err := readLine(byteReader{bytes.NewReader(text)})
		if err != nil {
			return
		}
		if len(line) > longestLine {
			t.Errorf("a line of %d bytes", len(line))
		}
		_, _ = parseBanner(line)
	})
}

// FuzzHandshake lets a host say anything in the classic handshake.
func FuzzHandshake(f *testing.F) {
	ack := classicMessage(classicParamsAck)
	le.PutUint32(ack[ackOffset:], 1)
	f.Add(bytes.Join([][]byte{ack, classicMessage(classicVersion, 11), classicMessage(classicAIO)}, nil))
	f.Fuzz(func(t *testing.T, reply []byte) {
		version, err := runHandshake(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(reply), io.Discard}, true)
		if err == nil && version < leastVersion {
			t.Errorf("version %d was taken", version)
		}
	})
}

// FuzzOpened reads any reply to OPEN_FILE.
func FuzzOpened(f *testing.F) {
	f.Add(unhex(f, "00000000 00000000 3412dec0 05000000 02000000 1e000000 00000000 00000040 01000000 00020000 8c020000 ff000000 3f000000 00000000 00000000"))
	f.Fuzz(func(t *testing.T, p []byte) {
		if o, err := parseOpened(p); err == nil && (o.capacity < 0 || o.capacity%sectorSize != 0) {
			t.Errorf("a disk of %d bytes", o.capacity)
		}
	})
}
