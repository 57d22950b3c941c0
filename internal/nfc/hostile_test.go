package nfc

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// requestHex returns the read request of vector A8 with the id 0 and a compression: 512 bytes at offset 0.
func requestHex(c Compression) string {
	return hex.EncodeToString(encodeFrame(frameIO, 0, readRequest(vectorHandle, 0, 512, c), nil))
}

// fragmentOf returns a reply to requestHex with one fragment.
func fragmentOf(c Compression, start, size, wire uint32, data []byte) string {
	p := append(encodeLongs(0), encodeWords(ioRead, uint32(c))...)
	p = append(p, encodeLongs(0)...)
	p = append(p, encodeWords(512, start, size, wire, 0)...)
	return hex.EncodeToString(encodeFrame(frameIO, 0, p, data)) + " "
}

// An invalid reply is an error of kind Corrupt and ends the session. ReadAt does not write
// outside the buffer.
func TestHostileFragments(t *testing.T) {
	half := make([]byte, 256)
	for name, reply := range map[string]string{
		"wrong magic":                   "00000000" + fragmentOf(Stored, 0, 512, 512, nil)[8:],
		"another id":                    strings.Replace(fragmentOf(Stored, 0, 512, 512, nil), "2c00000000000000", "2c00000007000000", 1),
		"another type":                  strings.Replace(fragmentOf(Stored, 0, 512, 512, nil), "7ada00a107", "7ada00a105", 1),
		"a payload of 4 GiB":            "7ada00a1 07000000 ffffffff 00000000",
		"a payload too short":           "7ada00a1 07000000 2b000000 00000000 43x00",
		"past the end":                  fragmentOf(Stored, 256, 512, 512, nil),
		"start of 4 GiB":                fragmentOf(Stored, 0xffffffff, 512, 512, nil),
		"length 0":                      fragmentOf(Stored, 0, 0, 0, nil),
		"repeated":                      fragmentOf(Stored, 0, 256, 256, half) + fragmentOf(Stored, 0, 256, 256, half),
		"overlapping":                   fragmentOf(Stored, 0, 256, 256, half) + fragmentOf(Stored, 128, 256, 256, half),
		"a wrong stored length":         fragmentOf(Stored, 0, 512, 511, nil),
		"compressed to 4 GiB":           fragmentOf(SkipZ, 0, 512, 0xffffffff, nil),
		"unknown compression":           fragmentOf(9, 0, 512, 512, nil),
		"SkipZ past the end":            fragmentOf(SkipZ, 0, 512, 17, decodeHex(t, "00020000 00000000 ff010000 02000000 41")),
		"SkipZ of another length":       fragmentOf(SkipZ, 0, 512, 8, decodeHex(t, "00040000 00000000")),
		"SkipZ with decreasing offsets": fragmentOf(SkipZ, 0, 512, 26, decodeHex(t, "00020000 00000000 10000000 01000000 41 0f000000 01000000 42")),
		"zlib with a wrong checksum":    fragmentOf(Zlib, 0, 512, 17, decodeHex(t, "78017374 7276711c c523360c 0049cb85 02")),
		"zlib of another length":        fragmentOf(Zlib, 0, 256, 17, decodeHex(t, "78017374 7276711c c523360c 0049cb85 01")),
		"FastLZ before the start":       fragmentOf(FastLZ, 0, 512, 4, decodeHex(t, "0041 20ff")),
		"FastLZ past the end":           fragmentOf(FastLZ, 0, 512, 5, decodeHex(t, "0041 e0ff 00")),
		"a text of 4 GiB":               "7ada00a1 01000000 10000000 00000000 05000000 00000000 00000000 ffffffff",
		"a refusal without a request":   "7ada00a1 01000000 10000000 09000000 05000000 00000000 00000000 00000000",
		"another offset":                strings.Replace(fragmentOf(Stored, 0, 512, 512, nil), "0100000000000000"+"0000000000000000", "0100000000000000"+"0002000000000000", 1),
	} {
		t.Run(name, func(t *testing.T) {
			d := newScriptedDisk(t, 0, exchange{requestHex(Stored), reply})
			const guard = 64
			room := bytes.Repeat([]byte{0xa5}, guard+512+guard)
			err := d.ReadAt(t.Context(), room[guard:guard+512:guard+512], 0)
			if !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" || d.Failed() == nil {
				t.Errorf("got %v (%v), session error %v", err, fault.KindOf(err), d.Failed())
			}
			for _, b := range append(room[:guard:guard], room[guard+512:]...) {
				if b != 0xa5 {
					t.Fatal("a byte outside the buffer was written")
				}
			}
		})
	}
}

func TestBrokenConnections(t *testing.T) {
	whole := fragmentOf(Stored, 0, 512, 512, make([]byte, 512))
	for name, reply := range map[string]string{
		"in a header": whole[:20], "in a payload": whole[:60], "in the data": whole[:600], "after half": fragmentOf(Stored, 0, 256, 256, make([]byte, 256)),
	} {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			_, _ = io.ReadFull(server, make([]byte, 60))
			_, _ = server.Write(decodeHex(t, reply))
		}()
		w := &stallConn{Conn: client, stall: testStall}
		d := &Disk{session: newSession("test", w, w), opts: Options{}.withDefaults(), size: 512, room: make(chan struct{}, 1)}
		if err := d.ReadAt(t.Context(), make([]byte, 512), 0); !fault.Is(err, fault.Transient) {
			t.Errorf("%s: got %v (%v)", name, err, fault.KindOf(err))
		}
	}
}

// newSilentDisk returns a disk on a host that accepts requests and never answers.
func newSilentDisk(t *testing.T, stall time.Duration) *Disk {
	client, server := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, server) }()
	t.Cleanup(func() { client.Close(); server.Close() })
	w := &stallConn{Conn: client, stall: stall}
	return &Disk{session: newSession("test", w, w), opts: Options{}.withDefaults(), size: 1 << 30, room: make(chan struct{}, 4)}
}

func TestStalledHostEndsTheSession(t *testing.T) {
	d := newSilentDisk(t, 50*time.Millisecond)
	if err := d.ReadAt(t.Context(), make([]byte, 4096), 0); !fault.Is(err, fault.Transient) {
		t.Errorf("got %v", err)
	}
}

// A canceled call returns its context error at once. A concurrent read gets a transient error.
func TestCanceledRead(t *testing.T) {
	d := newSilentDisk(t, testStall)
	ctx, cancel := context.WithCancel(t.Context())
	other := make(chan error, 1)
	go func() { other <- d.ReadAt(context.Background(), make([]byte, 8<<20), 1<<20) }()
	for len(d.room) < 4 { // until all requests are sent
		runtime.Gosched()
	}
	cancel()
	if err := d.ReadAt(ctx, make([]byte, 512), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if d.Failed() != nil {
		t.Error("a read that sent no request ended the session")
	}
	ctx, cancel = context.WithCancel(t.Context())
	canceled := make(chan error, 1)
	go func() { _, err := d.Extents(ctx, disk.Range{Len: 1 << 20}); canceled <- err }()
	cancel()
	if err := <-canceled; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := <-other; !fault.Is(err, fault.Transient) {
		t.Errorf("got %v (%v)", err, fault.KindOf(err))
	}
}

// A host may send a reply of zeros after it refused a map query. The next read ignores that
// reply.
func TestReadsContinueAfterRefusedMapQuery(t *testing.T) {
	mapRequest := hex.EncodeToString(encodeFrame(frameAllocated, 0, allocatedRequest(vectorHandle, 0, 16), nil))
	refusal := "7ada00a1 01000000 10000000 00000000 16000000 00000000 00000000 02000000 6e6f "
	read := hex.EncodeToString(encodeFrame(frameIO, 1, readRequest(vectorHandle, 0, 512, Stored), nil))
	data := strings.Replace(fragmentOf(Stored, 0, 512, 512, bytes.Repeat([]byte{7}, 512)), "2c00000000000000", "2c00000001000000", 1)
	for name, zeros := range map[string]string{"with zeros": "7ada00a1 0d000000 30000000 00000000 48x00", "without": ""} {
		d := newScriptedDisk(t, 0, exchange{mapRequest, refusal + zeros}, exchange{read, data})
		_, err := d.queryAllocated(0, 16)
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "no") {
			t.Errorf("%s: got %v", name, err)
		}
		got := make([]byte, 512)
		if err := d.ReadAt(t.Context(), got, 0); err != nil || got[511] != 7 {
			t.Errorf("%s: the next read: %v", name, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, v := range []struct {
		code uint64
		text string
		want fault.Kind
	}{
		{11, "NfcAioProcessOpenFileMsg: permission check failed", fault.Denied},
		{13, "", fault.Denied},
		{5, "failed to allocate the requested 2097176 bytes", fault.Transient},
		{1, "Thin/TBZ/Sparse disks cannot be opened in multiwriter mode", fault.Conflict},
		{1, "DiskLib error 16392: Failed to lock the file", fault.Conflict},
		{99, "something else", fault.Conflict},
	} {
		err := refusedOpen(&Refusal{v.code, v.text})
		if !fault.Is(err, v.want) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), fmt.Sprint(v.code)) {
			t.Errorf("%d %q: %v (%v)", v.code, v.text, err, fault.KindOf(err))
		}
	}
	if err := refusedRead(&Refusal{Code: 5}); !errors.Is(err, ErrMemory) {
		t.Errorf("got %v", err)
	}
}

// handshakePeer records writes, and calls answer when a read needs more data.
type handshakePeer struct {
	t       *testing.T
	writes  [][]byte
	replies bytes.Buffer
	answer  func(p *handshakePeer)
}

func (p *handshakePeer) Write(b []byte) (int, error) {
	p.writes = append(p.writes, bytes.Clone(b))
	return len(b), nil
}

func (p *handshakePeer) Read(b []byte) (int, error) {
	if p.replies.Len() == 0 {
		p.answer(p)
	}
	return p.replies.Read(b)
}

// The tag, the parameters and the version are three writes, and thus three TLS records,
// before the first read. The tag is only sent if the daemon supports it.
func TestHandshakeOrder(t *testing.T) {
	for _, tagged := range []bool{true, false} {
		var types []uint32
		p := &handshakePeer{t: t}
		p.answer = func(p *handshakePeer) {
			types = types[:0]
			for _, w := range p.writes {
				types = append(types, le.Uint32(w))
			}
			switch last := types[len(types)-1]; last {
			case classicVersion:
				ack := classicMessage(classicParamsAck)
				le.PutUint32(ack[ackOffset:], 1)
				p.replies.Write(ack)
				p.replies.Write(classicMessage(classicVersion, 9))
			case classicAIO:
				p.replies.Write(classicMessage(classicAIO))
			default:
				p.t.Fatalf("unexpected read after message %d", last)
			}
		}
		version, err := runHandshake(p, tagged)
		want := []uint32{classicTag, classicParams, classicVersion, classicConnection, classicFeatures, classicAIO}
		if !tagged {
			want = want[1:]
		}
		if err != nil || version != 9 || fmt.Sprint(types) != fmt.Sprint(want) {
			t.Errorf("tagged %v: sent %v, version %d, error %v", tagged, types, version, err)
		}
	}
}

func TestHandshakeRefused(t *testing.T) {
	ack := func(word uint32) []byte {
		b := classicMessage(classicParamsAck)
		le.PutUint32(b[ackOffset:], word)
		return b
	}
	for name, v := range map[string]struct {
		reply []byte
		want  fault.Kind
	}{
		"refused":         {classicMessage(classicComplete), fault.Denied},
		"no version word": {ack(0), fault.Unsupported},
		"version 2":       {append(ack(1), classicMessage(classicVersion, 2)...), fault.Unsupported},
		"unknown message": {classicMessage(77), fault.Corrupt},
	} {
		p := &handshakePeer{t: t, answer: func(p *handshakePeer) { p.replies.Write(v.reply) }}
		if _, err := runHandshake(p, true); !fault.Is(err, v.want) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v (%v)", name, err, fault.KindOf(err))
		}
	}
}

// closedWriter is a connection of a host that sent a message and reads nothing more.
type closedWriter struct{ io.Reader }

func (closedWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestHandshakeRefusedBeforeItWasSent(t *testing.T) {
	if _, err := runHandshake(closedWriter{bytes.NewReader(classicMessage(classicComplete))}, true); !fault.Is(err, fault.Denied) {
		t.Errorf("refused: got %v", err)
	}
	if _, err := runHandshake(closedWriter{bytes.NewReader(nil)}, true); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("hung up: got %v", err)
	}
}

func TestBanners(t *testing.T) {
	const real = "220 VMware Authentication Daemon Version 1.10: SSL Required, ServerDaemonProtocol:SOAP, MKSDisplayProtocol:VNC , VMXARGS supported, NFCSSL supported/t"
	for line, want := range map[string]banner{
		real + ", SHA256 supported":   {sha2: true, nfcTLS: true},
		real:                          {nfcTLS: true},
		"220 something: SSL Required": {},
	} {
		if got, err := parseBanner(line); err != nil || got != want {
			t.Errorf("%q: %+v, %v", line, got, err)
		}
	}
	if _, err := parseBanner("SSH-2.0-OpenSSH_9.6"); !fault.Is(err, fault.Unreachable) {
		t.Errorf("got %v", err)
	}
}

func TestInvalidTickets(t *testing.T) {
	good := Ticket{Service: "nfc", Session: "52-ab", Thumbprint: "AA"}
	for name, change := range map[string]func(*Ticket){
		"no certificate": func(t *Ticket) { t.Thumbprint = "" },
		"no session":     func(t *Ticket) { t.Session = "" },
		"a second line":  func(t *Ticket) { t.Session = "52\r\nPROXY evil" },
	} {
		bad := good
		change(&bad)
		_, err := Open(t.Context(), bad, "[ds] x.vmdk", Options{Dial: func(context.Context, string) (net.Conn, error) {
			t.Errorf("%s: Open dialled", name)
			return nil, net.ErrClosed
		}})
		if err == nil || strings.Contains(err.Error(), "52") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if got := (Ticket{}).Addr("vc.example:443"); got != "vc.example:902" {
		t.Errorf("address %s", got)
	}
	if got := (Ticket{Host: "::1", Port: 903}).Addr("vc"); got != "[::1]:903" {
		t.Errorf("address %s", got)
	}
}

func TestByteRanges(t *testing.T) {
	var p byteRanges
	for _, e := range [][2]int{{4, 6}, {0, 2}, {8, 9}, {2, 4}, {6, 8}} {
		if err := p.add(e[0], e[1]); err != nil {
			t.Fatal(err)
		}
	}
	if p.sum != 9 || len(p.list) != 1 {
		t.Errorf("%+v", p)
	}
	for _, e := range [][2]int{{0, 1}, {8, 10}, {3, 5}, {0, 20}} {
		if p.add(e[0], e[1]) == nil {
			t.Errorf("the overlapping range %v was accepted", e)
		}
	}
}
