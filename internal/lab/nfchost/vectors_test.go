package nfchost

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab/fastlz"
)

// The vectors are those of the protocol's description, except the handle. The host chooses the
// handle, here from the request's id.
const (
	vectorPath   = "[ds1] vm1/vm1-000001.vmdk"
	vectorSize   = 5 << 30
	vectorHandle = "3412dec0 05000000"
	ourHandle    = "032a0080 ffffffff" // handle of a file opened by request 3

	vectorTimeout = 2 * time.Minute
)

// decodeHex decodes hex with spaces, with ourHandle for vectorHandle. The word "248x00" means
// 248 zero bytes.
func decodeHex(t *testing.T, text string) (out []byte) {
	t.Helper()
	for _, word := range strings.Fields(strings.ReplaceAll(text, vectorHandle, ourHandle)) {
		digits, count := word, 1
		if n, ok := strings.CutSuffix(word, "x00"); ok {
			var err error
			if count, err = strconv.Atoi(n); err != nil {
				t.Fatal(err)
			}
			digits = "00"
		}
		b, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, bytes.Repeat(b, count)...)
	}
	return out
}

// vectorDisk is the disk of the vectors: 5 GiB that start with the bytes of begin.
type vectorDisk struct{ begin []byte }

func (d *vectorDisk) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(d.begin)) {
		copy(p, d.begin[off:])
	}
	return len(p), nil
}

func (d *vectorDisk) Size() int64                                      { return vectorSize }
func (d *vectorDisk) NextData(off int64) (start, end int64, err error) { return off, vectorSize, nil }
func (d *vectorDisk) Pacer() Pacer                                     { return noPacer{} }
func (d *vectorDisk) Close()                                           {}

// Allocated returns chunks 0, 1 and 9 after 64 MiB.
func (d *vectorDisk) Allocated(off, length int64) ([]Area, error) {
	const from, chunk = 64 << 20, 64 << 10
	return []Area{{from, 2 * chunk}, {from + 9*chunk, chunk}}, nil
}

func (d *vectorDisk) Entry(key string) string {
	return map[string]string{"adapterType": "lsilogic"}[key]
}

type noPacer struct{}

func (noPacer) Reserve(int, time.Time) time.Duration { return 0 }

// vectorGrant opens only the disk of the vectors.
type vectorGrant struct{ disk *vectorDisk }

func (g vectorGrant) Open(path string) (Disk, error) {
	if path != vectorPath {
		return nil, &Refusal{Code: CodeReadOnly, Text: "cannot open"}
	}
	return g.disk, nil
}

// testClient is a client of a host after the dialogue.
type testClient struct {
	t    *testing.T
	wire net.Conn
	disk *vectorDisk
}

func newTestClient(t *testing.T, rules Rules) *testClient {
	t.Helper()
	clientConn, server := net.Pipe()
	s := &Server{cfg: Config{Pacer: func(int64) Pacer { return noPacer{} }}, memory: newMemory(), conns: map[*conn]bool{}}
	s.SetRules(rules)
	v := &testClient{t: t, wire: clientConn, disk: &vectorDisk{}}
	c := &conn{
		server: s, raw: server, rules: s.Rules(), gone: make(chan struct{}), grant: vectorGrant{v.disk}, sha256: true, tag: "PlainText",
		in: &stream{r: server}, out: &wire{Conn: server},
	}
	if err := clientConn.SetDeadline(time.Now().Add(vectorTimeout)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer c.close()
		if c.runHandshake() == nil {
			_ = c.serveSession() // ends when the client disconnects
		}
	}()
	t.Cleanup(func() { clientConn.Close(); <-done })
	return v
}

func (v *testClient) send(text string) {
	v.t.Helper()
	if _, err := v.wire.Write(decodeHex(v.t, text)); err != nil {
		v.t.Fatal(err)
	}
}

func (v *testClient) expect(name, text string) {
	v.t.Helper()
	want := decodeHex(v.t, text)
	got := make([]byte, len(want))
	if n, err := io.ReadFull(v.wire, got); err != nil || !bytes.Equal(got, want) {
		v.t.Fatalf("%s: got  %x (%v)\nwant %x", name, got[:n], err, want)
	}
}

// runHandshake sends C1 to C6 and expects S1 to S3.
func (v *testClient) runHandshake(version string) {
	v.t.Helper()
	v.send("2b000000 506c6169 6e546578 74000000 248x00")
	v.send("21000000 260x00")
	v.expect("S1", "24000000 00000000 00000000 00000000 01000000 244x00")
	v.send("33000000 0b000000 256x00")
	v.expect("S2", "33000000 "+version+" 256x00")
	v.send("36000000 04000000 07000000 252x00 7664646b 6e62646d6f6465")
	v.send("37000000 03000000 256x00")
	v.send("34000000 260x00")
	v.expect("S3", "34000000 260x00")
}

const (
	vectorSockOpts = "7ada00a1 09000000 0c000000 01000000 00000000 00000000 00000000"
	vectorResPool  = "7ada00a1 16000000 04000000 02000000 01000000"
	vectorOpen     = "7ada00a1 04000000 3c000000 03000000 19000000 00000000 00000000 00000000 02000000 1e000000 36x00 5b6473315d20766d312f766d312d3030303030312e766d646b"
)

// openDisk sends A1 to A4 and expects their replies.
func (v *testClient) openDisk(buffers string) {
	v.t.Helper()
	v.send("7ada00a1 02000000 10000000 00000000 00000000 " + buffers + " 00000000")
	v.expect("A1r", "7ada00a1 02000000 10000000 00000000 00000000 00000000 00000000 00000000")
	v.send(vectorSockOpts)
	v.expect("A2r", "7ada00a1 09000000 0c000000 01000000 00000400 00000400 01000000")
	v.send(vectorResPool)
	v.expect("A3r", "7ada00a1 16000000 04000000 02000000 00000000")
	v.send(vectorOpen)
	v.expect("A4r", `7ada00a1 04000000 3c000000 03000000 00000000 00000000 3412dec0 05000000 02000000 1e000000 00000000
		00000040 01000000 00020000 8c020000 ff000000 3f000000 00000000 00000000`)
}

func newOpenClient(t *testing.T, rules Rules) *testClient {
	v := newTestClient(t, rules)
	v.runHandshake("0b000000")
	v.openDisk("00000000 00000000")
	return v
}

func TestHandshakeReplies(t *testing.T) {
	newTestClient(t, Rules{}).runHandshake("0b000000")
	newTestClient(t, Rules{LibVersion: 9}).runHandshake("09000000") // S2b
}

// The requests have the order of the description, with the ids 0 to 12.
func TestSessionAnswersTheVectors(t *testing.T) {
	abcd := bytes.Repeat([]byte("ABCD"), 128)
	v := newOpenClient(t, Rules{Order: Reversed})

	v.send("7ada00a1 0b000000 10000000 04000000 3412dec0 05000000 0b000000 00000000 61646170746572 54797065")
	v.expect("A5r", "7ada00a1 0b000000 10000000 04000000 00000000 00000000 00000000 08000000 6c73696c6f676963")

	v.send("7ada00a1 07000000 2c000000 05000000 3412dec0 05000000 01000000 00000000 00000040 00000000 00020000 00000000 00020000 00020000 00000000")
	v.expect("A6r", "7ada00a1 07000000 2c000000 05000000 00000000 00000000 01000000 00000000 00000040 00000000 00020000 00000000 00020000 00020000 00000000 512x00")

	v.send("7ada00a1 07000000 2c000000 06000000 3412dec0 05000000 01000000 00000000 00001000 00000000 00020100 00000000 00020100 00020100 00000000")
	v.expect("A7r", "7ada00a1 07000000 2c000000 06000000 00000000 00000000 01000000 00000000 00001000 00000000 00020100 00000100 00020000 00020000 00000000 512x00")
	v.expect("A7r", "7ada00a1 07000000 2c000000 06000000 00000000 00000000 01000000 00000000 00001000 00000000 00020100 00000000 00000100 00000100 00000000 65536x00")

	v.disk.begin = abcd
	v.send("7ada00a1 07000000 2c000000 07000000 3412dec0 05000000 01000000 02000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000")
	v.expectPacked("A8r", "7ada00a1 07000000 2c000000 07000000 00000000 00000000 01000000 02000000 00000000 00000000 00020000 00000000 00020000",
		fastlz.Decompress, abcd)
	v.send("7ada00a1 07000000 2c000000 08000000 3412dec0 05000000 01000000 01000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000")
	v.expectPacked("A9r", "7ada00a1 07000000 2c000000 08000000 00000000 00000000 01000000 01000000 00000000 00000000 00020000 00000000 00020000", inflateZlib, abcd)

	v.disk.begin = decodeHex(t, "137x00 78797a 360x00 51")
	v.send("7ada00a1 07000000 2c000000 09000000 3412dec0 05000000 01000000 03000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000")
	v.expect("A10r", "7ada00a1 07000000 2c000000 09000000 00000000 00000000 01000000 03000000 00000000 00000000 00020000 00000000 00020000 1c000000 00000000 "+
		"00020000 00000000 89000000 03000000 78797a f4010000 01000000 51")

	v.send("7ada00a1 0d000000 30000000 0a000000 3412dec0 05000000 00000000 00000000 00000100 00000000 00000004 00000000 10000000 00000000 00000000 00000000")
	v.expect("A11r", "7ada00a1 0d000000 30000000 0a000000 32x00 10000000 00000000 00000000 00000000 03020000")
	v.send("7ada00a1 05000000 08000000 0b000000 3412dec0 05000000")
	v.expect("A12r", "7ada00a1 05000000 08000000 0b000000 8x00")
	v.send("7ada00a1 03000000 04000000 0c000000 00000000")
	v.expect("A13r", "7ada00a1 03000000 04000000 0c000000 00000000")
	v.send("04000000 260x00") // C7
}

// The other vectors of the description: other buffers, a missing key, uncompressed data, and
// the long forms of the close requests.
func TestOtherVectors(t *testing.T) {
	for _, buffers := range []string{"00000100 01000000", "00001000 04000000", "00002000 04000000"} { // A1b, A1c, A1d
		v := newTestClient(t, Rules{})
		v.runHandshake("0b000000")
		v.openDisk(buffers)
	}
	v := newOpenClient(t, Rules{})
	v.send("7ada00a1 0b000000 10000000 04000000 3412dec0 05000000 04000000 00000000 75756964")
	v.expect("A5n", "7ada00a1 0b000000 10000000 04000000 00000000 00000000 00000000 00000000")
	v.send("7ada00a1 07000000 2c000000 09000000 3412dec0 05000000 01000000 03000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000")
	v.expect("A10z", "7ada00a1 07000000 2c000000 09000000 00000000 00000000 01000000 03000000 00000000 00000000 00020000 00000000 00020000 08000000 00000000 00020000 00000000")
	v.send("7ada00a1 07000000 2c000000 04000000 3412dec0 05000000 01000000 03000000 0000100000000000 0000010000000000 00000100 00000100 00000000")
	v.expect("zero chunk", "7ada00a1 07000000 2c000000 04000000 8x00 01000000 03000000 0000100000000000 00000100 00000000 00000100 08000000 00000000 00000100 00000000")
	v.send("7ada00a1 05000000 10000000 0b000000 3412dec0 05000000 00000000 00000000")
	v.expect("A12b", "7ada00a1 05000000 10000000 0b000000 16x00")
	v.send("7ada00a1 03000000 10000000 0c000000 16x00")
	v.expect("A13b", "7ada00a1 03000000 10000000 0c000000 16x00")

	v = newOpenClient(t, Rules{Packing: Stored})
	v.disk.begin = bytes.Repeat([]byte("ABCD"), 128)
	v.send("7ada00a1 07000000 2c000000 07000000 3412dec0 05000000 01000000 02000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000")
	v.expect("A8x", "7ada00a1 07000000 2c000000 07000000 00000000 00000000 01000000 00000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000 "+
		hex.EncodeToString(v.disk.begin))
}

// A4e is a refusal. A reply of zeros follows it, and the session continues.
func TestRefusalVectors(t *testing.T) {
	v := newTestClient(t, Rules{})
	v.runHandshake("0b000000")
	v.send("7ada00a1 02000000 10000000 00000000 16x00")
	v.expect("A1r", "7ada00a1 02000000 10000000 00000000 16x00")
	v.send("7ada00a1 04000000 3c000000 03000000 01000000 00000000 00000000 00000000 02000000 1e000000 36x00 78")
	v.expect("A4e", "7ada00a1 01000000 10000000 03000000 0b000000 00000000 00000000 0b000000 63616e6e6f74206f70656e")
	v.expect("A4e", "7ada00a1 04000000 3c000000 03000000 60x00")
	v.send(vectorOpen)
	v.expect("A4r", "7ada00a1 04000000 3c000000 03000000 00000000 00000000 3412dec0 05000000")
}

// expectPacked reads a fragment and compares its decompressed data, since the compressed form
// is not unique. head is the part of the fragment before the compressed size.
func (v *testClient) expectPacked(name, head string, unpack func(dst, packed []byte) error, want []byte) {
	v.t.Helper()
	v.expect(name, head)
	rest := make([]byte, 8)
	if _, err := io.ReadFull(v.wire, rest); err != nil {
		v.t.Fatal(err)
	}
	n := binary.LittleEndian.Uint32(rest)
	if n >= uint32(len(want)) || binary.LittleEndian.Uint32(rest[4:]) != 0 {
		v.t.Fatalf("%s: %x", name, rest)
	}
	packed, got := make([]byte, n), make([]byte, len(want))
	if _, err := io.ReadFull(v.wire, packed); err != nil {
		v.t.Fatal(err)
	}
	if err := unpack(got, packed); err != nil || !bytes.Equal(got, want) {
		v.t.Errorf("%s: %x decompresses to %x (%v)", name, packed, got, err)
	}
}

func inflateZlib(dst, packed []byte) error {
	z, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(z, dst); err != nil {
		return err
	}
	if n, err := z.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return errTrailer
	}
	return nil
}

// The fragment of 16 bytes has two runs, at its start and at its end.
func TestSkipZOfShortFragment(t *testing.T) {
	data := decodeHex(t, "6162 11x00 78797a")
	want := decodeHex(t, "10000000 00000000 00000000 02000000 6162 0d000000 03000000 78797a")
	if got := appendSkipZ(nil, data); !bytes.Equal(got, want) {
		t.Errorf("% x\nwant % x", got, want)
	}
}
