package nfc

import (
	"bytes"
	"encoding/hex"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// The vectors are built from published layouts. Their ids start at 0.
const (
	vectorHandle = 0x00000005C0DE1234
	vectorPath   = "[ds1] vm1/vm1-000001.vmdk"
	vectorSize   = 5 << 30
)

// decodeHex decodes hex with spaces. The word "248x00" means 248 zero bytes.
func decodeHex(t testing.TB, text string) []byte {
	t.Helper()
	var out []byte
	for _, word := range strings.Fields(text) {
		if n, ok := strings.CutSuffix(word, "x00"); ok {
			count, err := strconv.Atoi(n)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, make([]byte, count)...)
			continue
		}
		b, err := hex.DecodeString(word)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

func TestClassicVectors(t *testing.T) {
	for name, v := range map[string]struct {
		got  []byte
		want string
	}{
		"C1":  {tagMessage("PlainText"), "2b000000 506c6169 6e546578 74000000 248x00"},
		"C1b": {tagMessage("k3Vq9ZtR0aLmXw2B"), "2b000000 6b335671 395a7452 30614c6d 58773242 244x00"},
		"C2":  {classicMessage(classicParams), "21000000 260x00"},
		"C3":  {classicMessage(classicVersion, ownVersion), "33000000 0b000000 256x00"},
		"C4":  {connectionMessage("vddk", "nbdmode"), "36000000 04000000 07000000 252x00 7664646b 6e62646d6f6465"},
		"C5":  {classicMessage(classicFeatures, features), "37000000 03000000 256x00"},
		"C6":  {classicMessage(classicAIO), "34000000 260x00"},
		"C7":  {classicMessage(classicComplete), "04000000 260x00"},
	} {
		if want := decodeHex(t, v.want); !bytes.Equal(v.got, want) {
			t.Errorf("%s: got %x, want %x", name, v.got, want)
		}
	}
}

func TestFrameVectors(t *testing.T) {
	path, trailer := openFileRequest(vectorPath)
	for name, v := range map[string]struct {
		got  []byte
		want string
	}{
		"A1":   {encodeFrame(frameOpenSession, 0, bufferWords(Buffers{}), nil), "7ada00a1 02000000 10000000 00000000 00000000 00000000 00000000 00000000"},
		"A1b":  {encodeFrame(frameOpenSession, 0, bufferWords(Buffers{64 << 10, 1}), nil), "7ada00a1 02000000 10000000 00000000 00000000 00000100 01000000 00000000"},
		"A1c":  {encodeFrame(frameOpenSession, 0, bufferWords(Buffers{1 << 20, 4}), nil), "7ada00a1 02000000 10000000 00000000 00000000 00001000 04000000 00000000"},
		"A1d":  {encodeFrame(frameOpenSession, 0, bufferWords(Buffers{2 << 20, 4}), nil), "7ada00a1 02000000 10000000 00000000 00000000 00002000 04000000 00000000"},
		"A2":   {encodeFrame(frameSockOpts, 1, encodeWords(0, 0, 0), nil), "7ada00a1 09000000 0c000000 01000000 00000000 00000000 00000000"},
		"A3":   {encodeFrame(frameResPool, 2, encodeWords(1), nil), "7ada00a1 16000000 04000000 02000000 01000000"},
		"A4":   {encodeFrame(frameOpenFile, 3, path, trailer), "7ada00a1 04000000 3c000000 03000000 19000000 00000000 00000000 00000000 02000000 1e000000 36x00 5b6473315d20766d312f766d312d3030303030312e766d646b"},
		"A6":   {encodeFrame(frameIO, 5, readRequest(vectorHandle, 1<<30, 512, Stored), nil), "7ada00a1 07000000 2c000000 05000000 3412dec0 05000000 01000000 00000000 00000040 00000000 00020000 00000000 00020000 00020000 00000000"},
		"A7":   {encodeFrame(frameIO, 6, readRequest(vectorHandle, 1<<20, 66048, Stored), nil), "7ada00a1 07000000 2c000000 06000000 3412dec0 05000000 01000000 00000000 00001000 00000000 00020100 00000000 00020100 00020100 00000000"},
		"A8":   {encodeFrame(frameIO, 7, readRequest(vectorHandle, 0, 512, FastLZ), nil), "7ada00a1 07000000 2c000000 07000000 3412dec0 05000000 01000000 02000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000"},
		"A9":   {encodeFrame(frameIO, 8, readRequest(vectorHandle, 0, 512, Zlib), nil), "7ada00a1 07000000 2c000000 08000000 3412dec0 05000000 01000000 01000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000"},
		"A10":  {encodeFrame(frameIO, 9, readRequest(vectorHandle, 0, 512, SkipZ), nil), "7ada00a1 07000000 2c000000 09000000 3412dec0 05000000 01000000 03000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000"},
		"A11":  {encodeFrame(frameAllocated, 10, allocatedRequest(vectorHandle, 64<<20, 16), nil), "7ada00a1 0d000000 30000000 0a000000 3412dec0 05000000 00000000 00000000 00000100 00000000 00000004 00000000 10000000 00000000 00000000 00000000"},
		"A12":  {encodeFrame(frameCloseFile, 11, encodeLongs(vectorHandle), nil), "7ada00a1 05000000 08000000 0b000000 3412dec0 05000000"},
		"A13":  {encodeFrame(frameCloseAll, 12, encodeWords(0), nil), "7ada00a1 03000000 04000000 0c000000 00000000"},
		"wide": {encodeFrame(frameIO, 4, readRequest(0xffffffff80002a1f, 1<<20, 64<<10, SkipZ), nil), "7ada00a1 07000000 2c000000 04000000 1f2a0080ffffffff 01000000 03000000 0000100000000000 0000010000000000 00000100 00000100 00000000"},
	} {
		if want := decodeHex(t, v.want); !bytes.Equal(v.got, want) {
			t.Errorf("%s: got %x, want %x", name, v.got, want)
		}
	}
}

// exchange is a request of the client and the reply of the host.
type exchange struct{ request, reply string }

// newScriptedSession returns a session with a host that follows a script: it compares each
// request and sends the reply. The next request of the session has the given id.
func newScriptedSession(t *testing.T, next uint32, script ...exchange) *session {
	t.Helper()
	client, server := net.Pipe()
	end := make(chan struct{})
	go func() {
		defer close(end)
		defer server.Close()
		for i, x := range script {
			want := decodeHex(t, x.request)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, want) {
				t.Errorf("request %d: got %x (%v), want %x", i, got, err, want)
				return
			}
			if _, err := server.Write(decodeHex(t, x.reply)); err != nil {
				return // the client closed the connection
			}
		}
		_, _ = io.Copy(io.Discard, server)
	}()
	t.Cleanup(func() { client.Close(); <-end })
	w := &stallConn{Conn: client, stall: testStall}
	s := newSession("test", w, w)
	s.next = next
	return s
}

func newScriptedDisk(t *testing.T, next uint32, script ...exchange) *Disk {
	s := newScriptedSession(t, next, script...)
	o := Options{}.withDefaults()
	return &Disk{session: s, opts: o, path: vectorPath, handle: vectorHandle, size: vectorSize, room: make(chan struct{}, o.Depth)}
}

func TestSetUpVectors(t *testing.T) {
	s := newScriptedSession(t, 0,
		exchange{"7ada00a1 02000000 10000000 00000000 00000000 00001000 04000000 00000000",
			"7ada00a1 02000000 10000000 00000000 00000000 00000000 00000000 00000000"},
		exchange{"7ada00a1 09000000 0c000000 01000000 00000000 00000000 00000000",
			"7ada00a1 09000000 0c000000 01000000 00000400 00000400 01000000"},
		exchange{"7ada00a1 16000000 04000000 02000000 01000000", "7ada00a1 16000000 04000000 02000000 00000000"},
		exchange{"7ada00a1 04000000 3c000000 03000000 19000000 00000000 00000000 00000000 02000000 1e000000 36x00 5b6473315d20766d312f766d312d3030303030312e766d646b",
			`7ada00a1 04000000 3c000000 03000000 00000000 00000000 3412dec0 05000000 02000000 1e000000 00000000
			 00000040 01000000 00020000 8c020000 ff000000 3f000000 00000000 00000000`},
		exchange{"7ada00a1 05000000 08000000 04000000 3412dec0 05000000", "7ada00a1 05000000 10000000 04000000 16x00"},
		exchange{"7ada00a1 03000000 04000000 05000000 00000000", "7ada00a1 03000000 04000000 05000000 00000000"},
		exchange{"04000000 260x00", ""},
	)
	if err := s.openSession(Buffers{1 << 20, 4}); err != nil {
		t.Fatal(err)
	}
	d := &Disk{session: s, path: vectorPath}
	if err := d.openFile(); err != nil || d.handle != vectorHandle || d.size != vectorSize {
		t.Errorf("handle %x, size %d, error %v", d.handle, d.size, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestReadVectors(t *testing.T) {
	abcd := bytes.Repeat([]byte("ABCD"), 128)
	skipped := make([]byte, 512)
	copy(skipped[137:], "xyz")
	skipped[500] = 'Q'
	const at0 = "00000000 00000000 00020000 00000000 00020000 "
	for name, v := range map[string]struct {
		id          uint32
		compression Compression
		request     string
		reply       string
		want        []byte
	}{
		"A8": {7, FastLZ, "7ada00a1 07000000 2c000000 07000000 3412dec0 05000000 01000000 02000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000",
			"7ada00a1 07000000 2c000000 07000000 00000000 00000000 01000000 02000000 " + at0 + "11000000 00000000 0341424344 e0fd03 e0e803 044441424344", abcd},
		"A8x": {7, FastLZ, "7ada00a1 07000000 2c000000 07000000 3412dec0 05000000 01000000 02000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000",
			"7ada00a1 07000000 2c000000 07000000 00000000 00000000 01000000 00000000 " + at0 + "00020000 00000000 " + hex.EncodeToString(abcd), abcd},
		"A9": {8, Zlib, "7ada00a1 07000000 2c000000 08000000 3412dec0 05000000 01000000 01000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000",
			"7ada00a1 07000000 2c000000 08000000 00000000 00000000 01000000 01000000 " + at0 + "11000000 00000000 78017374 7276711c c523360c 0049cb85 01", abcd},
		"A10": {9, SkipZ, "7ada00a1 07000000 2c000000 09000000 3412dec0 05000000 01000000 03000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000",
			"7ada00a1 07000000 2c000000 09000000 00000000 00000000 01000000 03000000 " + at0 + "1c000000 00000000 00020000 00000000 89000000 03000000 78797a f4010000 01000000 51", skipped},
		"A10z": {9, SkipZ, "7ada00a1 07000000 2c000000 09000000 3412dec0 05000000 01000000 03000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000",
			"7ada00a1 07000000 2c000000 09000000 00000000 00000000 01000000 03000000 " + at0 + "08000000 00000000 00020000 00000000", make([]byte, 512)},
	} {
		t.Run(name, func(t *testing.T) {
			d := newScriptedDisk(t, v.id, exchange{v.request, v.reply})
			got := bytes.Repeat([]byte{0xee}, 512)
			if err := d.ReadAs(t.Context(), got, 0, v.compression); err != nil || !bytes.Equal(got, v.want) {
				t.Errorf("got %x, error %v", got, err)
			}
		})
	}
}

// The client sends C1 to C6 with the client name decamp, and the host sends S1 to S3 or S2b.
func TestHandshakeVectors(t *testing.T) {
	const (
		hello  = "2b000000 506c6169 6e546578 74000000 248x00 21000000 260x00 33000000 0b000000 256x00"
		answer = "24000000 00000000 00000000 00000000 01000000 244x00 33000000 "
		enter  = "36000000 06000000 07000000 252x00 646563616d70 6e62646d6f6465 37000000 03000000 256x00 34000000 260x00"
		begins = "34000000 260x00"
	)
	for want, version := range map[uint32]string{11: "0b000000 256x00", 9: "09000000 256x00"} {
		s := newScriptedSession(t, 0, exchange{hello, answer + version}, exchange{enter, begins})
		if got, err := runHandshake(s.conn, true); err != nil || got != want {
			t.Errorf("version %d, error %v", got, err)
		}
	}
	untagged := strings.TrimPrefix(hello, "2b000000 506c6169 6e546578 74000000 248x00 ")
	s := newScriptedSession(t, 0, exchange{untagged, answer + "0b000000 256x00"}, exchange{enter, begins})
	if _, err := runHandshake(s.conn, false); err != nil {
		t.Error(err)
	}
}

// A4e: a refusal and its reply of zeros do not affect the next open in the same session.
func TestRefusalVector(t *testing.T) {
	const openRequest = " 3c000000 %s 19000000 00000000 00000000 00000000 02000000 1e000000 36x00 5b6473315d20766d312f766d312d3030303030312e766d646b"
	s := newScriptedSession(t, 3,
		exchange{"7ada00a1 04000000" + strings.Replace(openRequest, "%s", "03000000", 1),
			"7ada00a1 01000000 10000000 03000000 0b000000 00000000 00000000 0b000000 63616e6e6f74206f70656e 7ada00a1 04000000 3c000000 03000000 60x00"},
		exchange{"7ada00a1 04000000" + strings.Replace(openRequest, "%s", "04000000", 1),
			`7ada00a1 04000000 3c000000 04000000 00000000 00000000 3412dec0 05000000 02000000 1e000000 00000000
			 00000040 01000000 00020000 8c020000 ff000000 3f000000 00000000 00000000`},
	)
	d := &Disk{session: s, path: vectorPath}
	if err := d.openFile(); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "cannot open") {
		t.Errorf("the refused open: %v", err)
	}
	if err := d.openFile(); err != nil || d.handle != vectorHandle || d.size != vectorSize {
		t.Errorf("the next open: handle %x, size %d, error %v", d.handle, d.size, err)
	}
}

// A6: one fragment at the offset 1 GiB.
func TestReadAtAGigabyte(t *testing.T) {
	want := bytes.Repeat([]byte{0xc5}, 512)
	d := newScriptedDisk(t, 5, exchange{
		"7ada00a1 07000000 2c000000 05000000 3412dec0 05000000 01000000 00000000 00000040 00000000 00020000 00000000 00020000 00020000 00000000",
		"7ada00a1 07000000 2c000000 05000000 00000000 00000000 01000000 00000000 00000040 00000000 00020000 00000000 00020000 00020000 00000000 " + hex.EncodeToString(want),
	})
	got := make([]byte, 512)
	if err := d.ReadAt(t.Context(), got, 1<<30); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %x, error %v", got, err)
	}
}

// Vectors of the second source: a chunk of zeros with a handle like a kernel pointer, SkipZ
// with data at both ends, zlib of the numbers 0 to 15, and an error record.
func TestVectorsOfTheSecondSource(t *testing.T) {
	d := newScriptedDisk(t, 4, exchange{
		"7ada00a1 07000000 2c000000 04000000 1f2a0080ffffffff 01000000 03000000 0000100000000000 0000010000000000 00000100 00000100 00000000",
		"7ada00a1 07000000 2c000000 04000000 8x00 01000000 03000000 0000100000000000 00000100 00000000 00000100 08000000 00000000 00000100 00000000",
	})
	d.handle = 0xffffffff80002a1f
	got := bytes.Repeat([]byte{0xee}, 64<<10)
	if err := d.ReadAs(t.Context(), got, 1<<20, SkipZ); err != nil || !bytes.Equal(got, make([]byte, 64<<10)) {
		t.Errorf("zero chunk: error %v", err)
	}

	short := bytes.Repeat([]byte{0xee}, 16)
	err := decodeSkipZ(short, decodeHex(t, "10000000 00000000 00000000 02000000 6162 0d000000 03000000 78797a"))
	if err != nil || !bytes.Equal(short, decodeHex(t, "6162 11x00 78797a")) {
		t.Errorf("SkipZ: %x, error %v", short, err)
	}
	f := fragmentReader{packed: decodeHex(t, "789c6360646266616563e7e0e4e2e6e1e5e3070002b80079")}
	if err := f.inflateZlib(short); err != nil || !bytes.Equal(short, decodeHex(t, "000102030405060708090a0b0c0d0e0f")) {
		t.Errorf("zlib: %x, error %v", short, err)
	}
	r, n, err := parseRefusal(decodeHex(t, "0b00000000000000 00000000 04000000"))
	if err != nil || r.Code != codePermitted || n != len("nope") {
		t.Errorf("error record: %+v, text of %d bytes, error %v", r, n, err)
	}
}

// A7: the second half arrives first.
func TestFragmentsInAnyOrder(t *testing.T) {
	want := make([]byte, 66048)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	d := newScriptedDisk(t, 6, exchange{
		"7ada00a1 07000000 2c000000 06000000 3412dec0 05000000 01000000 00000000 00001000 00000000 00020100 00000000 00020100 00020100 00000000",
		"7ada00a1 07000000 2c000000 06000000 00000000 00000000 01000000 00000000 00001000 00000000 00020100 00000100 00020000 00020000 00000000 " + hex.EncodeToString(want[65536:]) +
			" 7ada00a1 07000000 2c000000 06000000 00000000 00000000 01000000 00000000 00001000 00000000 00020100 00000000 00000100 00000100 00000000 " + hex.EncodeToString(want[:65536]),
	})
	got := make([]byte, len(want))
	if err := d.ReadAt(t.Context(), got, 1<<20); err != nil || !bytes.Equal(got, want) {
		t.Errorf("error %v, equal %v", err, bytes.Equal(got, want))
	}
}

// A11: the byte after the last bit is set and must be ignored.
func TestAllocatedVector(t *testing.T) {
	d := newScriptedDisk(t, 10, exchange{
		"7ada00a1 0d000000 30000000 0a000000 3412dec0 05000000 00000000 00000000 00000100 00000000 00000004 00000000 10000000 00000000 00000000 00000000",
		"7ada00a1 0d000000 30000000 0a000000 32x00 10000000 00000000 00000000 00000000 0302ff00",
	})
	got, err := d.queryAllocated(64<<20, 16)
	if err != nil || len(got) != 2 || got[0].Off != 64<<20 || got[0].Len != 128<<10 || got[1].Off != 64<<20+9*64<<10 || got[1].Len != 64<<10 {
		t.Errorf("got %v, error %v", got, err)
	}
}
