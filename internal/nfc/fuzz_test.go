package nfc

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// fixedReplies is a connection that ignores requests, returns fixed bytes and then ends.
type fixedReplies struct {
	net.Conn // ignores deadlines
	from     *bytes.Reader
}

func (a fixedReplies) Read(p []byte) (int, error)  { return a.from.Read(p) }
func (a fixedReplies) Write(p []byte) (int, error) { return len(p), nil }

// FuzzReplies sends arbitrary replies to a read, a map query and a close. A read does not
// write outside its buffer, and no error has the kind fault.Internal.
func FuzzReplies(f *testing.F) {
	whole := fragmentOf(Stored, 0, 512, 512, bytes.Repeat([]byte{1}, 512))
	f.Add(decodeHex(f, whole))
	f.Add(decodeHex(f, fragmentOf(Stored, 256, 256, 256, make([]byte, 256))+fragmentOf(SkipZ, 0, 256, 8, decodeHex(f, "00010000 00000000"))))
	f.Add(decodeHex(f, fragmentOf(FastLZ, 0, 512, 17, decodeHex(f, "0341424344 e0fd03 e0e803 044441424344"))))
	f.Add(decodeHex(f, fragmentOf(Zlib, 0, 512, 17, decodeHex(f, "78017374 7276711c c523360c 0049cb85 01"))))
	f.Add(decodeHex(f, "7ada00a1 01000000 10000000 00000000 05000000 00000000 00000000 02000000 6e6f"))
	f.Add(decodeHex(f, whole+"7ada00a1 0d000000 30000000 01000000 32x00 10000000 00000000 00000000 00000000 03020000"))
	f.Fuzz(func(t *testing.T, reply []byte) {
		client, server := net.Pipe()
		defer server.Close()
		w := &stallConn{Conn: client, stall: testStall}
		s := newSession("fuzz", w, fixedReplies{client, bytes.NewReader(reply)})
		d := &Disk{session: s, opts: Options{}.withDefaults(), size: 1 << 20, room: make(chan struct{}, 1)}
		const guard = 64
		room := bytes.Repeat([]byte{0xa5}, guard+512+guard)
		if err := d.ReadAt(t.Context(), room[guard:guard+512:guard+512], 0); err != nil && fault.KindOf(err) == fault.Internal {
			t.Errorf("an error of kind %v: %v", fault.Internal, err)
		}
		for _, b := range append(room[:guard:guard], room[guard+512:]...) {
			if b != 0xa5 {
				t.Fatal("a byte outside the buffer was written")
			}
		}
		if used, err := d.queryAllocated(0, 16); err == nil {
			for _, r := range used {
				if r.Off < 0 || r.End() > 16*mapChunk {
					t.Fatalf("range %v is outside of 16 chunks", r)
				}
			}
		}
		d.Close()
	})
}

// FuzzDialogue parses arbitrary lines of a daemon as banners.
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

// FuzzHandshake sends arbitrary replies in the classic handshake.
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
			t.Errorf("version %d was accepted", version)
		}
	})
}

// FuzzOpened parses arbitrary replies to OPEN_FILE.
func FuzzOpened(f *testing.F) {
	f.Add(decodeHex(f, "00000000 00000000 3412dec0 05000000 02000000 1e000000 00000000 00000040 01000000 00020000 8c020000 ff000000 3f000000 00000000 00000000"))
	f.Fuzz(func(t *testing.T, p []byte) {
		if o, err := parseOpened(p); err == nil && (o.capacity < 0 || o.capacity%sectorSize != 0) {
			t.Errorf("a disk of %d bytes", o.capacity)
		}
	})
}
