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

// The vectors are those of the protocol's description, byte for byte. Only the handle is
// another: it is the host's to choose, and this one makes it of the request's id.
const (
	vectorPath   = "[ds1] vm1/vm1-000001.vmdk"
	vectorSize   = 5 << 30
	vectorHandle = "3412dec0 05000000"
	ourHandle    = "032a0080 ffffffff" // of a file opened by request 3

	vectorPatience = 2 * time.Minute
)

// unhex reads hex with spaces; "248x00" stands for as many zeros.
func unhex(t *testing.T, text string) (out []byte) {
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

// vectorDisk is the vectors' disk: 5 GiB that begin with whatever a vector is about.
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

// Allocated is true of chunks 0, 1 and 9 from 64 MiB on.
func (d *vectorDisk) Allocated(off, length int64) ([]Area, error) {
	const from, chunk = 64 << 20, 64 << 10
	return []Area{{from, 2 * chunk}, {from + 9*chunk, chunk}}, nil
}

func (d *vectorDisk) Entry(key string) string {
	return map[string]string{"adapterType": "lsilogic"}[key]
}

type noPacer struct{}

func (noPacer) Reserve(int, time.Time) time.Duration { return 0 }

// vectorGrant opens the disk, and nothing else.
type vectorGrant struct{ disk *vectorDisk }

func (g vectorGrant) Open(path string) (Disk, error) {
	if path != vectorPath {
		return nil, &Refusal{Code: CodeReadOnly, Text: "cannot open"}
	}
	return g.disk, nil
}

// visitor plays a client to a host whose dialogue is over.
type visitor struct {
	t    *testing.T
	wire net.Conn
	disk *vectorDisk
}

func visit(t *testing.T, rules Rules) *visitor {
	t.Helper()
	ours, theirs := net.Pipe()
	s := &Server{cfg: Config{Pacer: func(int64) Pacer { return noPacer{} }}, memory: newMemory(), conns: map[*conn]bool{}}
	s.SetRules(rules)
	v := &visitor{t: t, wire: ours, disk: &vectorDisk{}}
	c := &conn{
		server: s, raw: theirs, rules: s.Rules(), gone: make(chan struct{}), grant: vectorGrant{v.disk}, sha256: true, tag: "PlainText",
		in: &stream{r: theirs}, out: &wire{Conn: theirs},
	}
	if err := ours.SetDeadline(time.Now().Add(vectorPatience)); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer c.close()
		if c.runHandshake() == nil {
			_ = c.serveSession() // ends when the visitor leaves
		}
	}()
	t.Cleanup(func() { ours.Close(); <-over })
	return v
}

func (v *visitor) sends(text string) {
	v.t.Helper()
	if _, err := v.wire.Write(unhex(v.t, text)); err != nil {
		v.t.Fatal(err)
	}
}

func (v *visitor) hears(name, text string) {
	v.t.Helper()
	want := unhex(v.t, text)
	got := make([]byte, len(want))
	if n, err := io.ReadFull(v.wire, got); err != nil || !bytes.Equal(got, want) {
		v.t.Fatalf("%s: got  %x (%v)\nwant %x", name, got[:n], err, want)
	}
}

// shakes is C1 to C6.
func (v *visitor) shakes(version string) {
	v.t.Helper()
	v.sends("2b000000 506c6169 6e546578 74000000 248x00")
	v.sends("21000000 260x00")
	v.hears("S1", "24000000 00000000 00000000 00000000 01000000 244x00")
	v.sends("33000000 0b000000 256x00")
	v.hears("S2", "33000000 "+version+" 256x00")
	v.sends("36000000 04000000 07000000 252x00 7664646b 6e62646d6f6465")
	v.sends("37000000 03000000 256x00")
	v.sends("34000000 260x00")
	v.hears("S3", "34000000 260x00")
}

const (
	vectorSockOpts = "7ada00a1 09000000 0c000000 01000000 00000000 00000000 00000000"
	vectorResPool  = "7ada00a1 16000000 04000000 02000000 01000000"
	vectorOpen     = "7ada00a1 04000000 3c000000 03000000 19000000 00000000 00000000 00000000 02000000 1e000000 36x00 5b6473315d20766d312f766d312d3030303030312e766d646b"
)

// opens is A1 to A4, with buffers as told.
func (v *visitor) opens(buffers string) {
	v.t.Helper()
	v.sends("7ada00a1 02000000 10000000 00000000 00000000 " + buffers + " 00000000")
	v.hears("A1r", "7ada00a1 02000000 10000000 00000000 00000000 00000000 00000000 00000000")
	v.sends(vectorSockOpts)
	v.hears("A2r", "7ada00a1 09000000 0c000000 01000000 00000400 00000400 01000000")
	v.sends(vectorResPool)
	v.hears("A3r", "7ada00a1 16000000 04000000 02000000 00000000")
	v.sends(vectorOpen)
	v.hears("A4r", `7ada00a1 04000000 3c000000 03000000 00000000 00000000 3412dec0 05000000 02000000 1e000000 00000000
		00000040 01000000 00020000 8c020000 ff000000 3f000000 00000000 00000000`)
}

func visitOpen(t *testing.T, rules Rules) *visitor {
	v := visit(t, rules)
	v.shakes("0b000000")
	v.opens("00000000 00000000")
	return v
}

func TestHandshakeAnswersTheVectors(t *testing.T) {
	visit(t, Rules{}).shakes("0b000000")
	visit(t, Rules{LibVersion: 9}).shakes("09000000") // S2b
}

// The same in the order in which the description has it: ids 0 to 12.
func TestSessionAnswersTheVectors(t *testing.T) {
	abcd := bytes.Repeat([]byte("ABCD"), 128)
	v := visitOpen(t, Rules{Order: Reversed})

	v.sends("7ada00a1 0b000000 10000000 04000000 3412dec0 05000000 0b000000 00000000 61646170746572 54797065")
	v.hears("A5r", "7ada00a1 0b000000 10000000 04000000 00000000 00000000 00000000 08000000 6c73696c6f676963")

	v.sends("7ada00a1 07000000 2c000000 05000000 3412dec0 05000000 01000000 00000000 00000040 00000000 00020000 00000000 00020000 00020000 00000000")
	v.hears("A6r", "7ada00a1 07000000 2c000000 05000000 00000000 00000000 01000000 00000000 00000040 00000000 00020000 00000000 00020000 00020000 00000000 512x00")

	v.sends("7ada00a1 07000000 2c000000 06000000 3412dec0 05000000 01000000 00000000 00001000 00000000 00020100 00000000 00020100 00020100 00000000")
	v.hears("A7r", "7ada00a1 07000000 2c000000 06000000 00000000 00000000 01000000 00000000 00001000 00000000 00020100 00000100 00020000 00020000 00000000 512x00")
	v.hears("A7r", "7ada00a1 07000000 2c000000 06000000 00000000 00000000 01000000 00000000 00001000 00000000 00020100 00000000 00000100 00000100 00000000 65536x00")

	v.disk.begin = abcd
	v.sends("7ada00a1 07000000 2c000000 07000000 3412dec0 05000000 01000000 02000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000")
	v.packs("A8r", "7ada00a1 07000000 2c000000 07000000 00000000 00000000 01000000 02000000 00000000 00000000 00020000 00000000 00020000",
		fastlz.Decompress, abcd)
	v.sends("7ada00a1 07000000 2c000000 08000000 3412dec0 05000000 01000000 01000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000")
	v.packs("A9r", "7ada00a1 07000000 2c000000 08000000 00000000 00000000 01000000 01000000 00000000 00000000 00020000 00000000 00020000", inflate, abcd)

	v.disk.begin = unhex(t, "137x00 78797a 360x00 51")
	v.sends("7ada00a1 07000000 2c000000 09000000 3412dec0 05000000 01000000 03000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000")
	v.hears("A10r", "7ada00a1 07000000 2c000000 09000000 00000000 00000000 01000000 03000000 00000000 00000000 00020000 00000000 00020000 1c000000 00000000 "+
		"00020000 00000000 89000000 03000000 78797a f4010000 01000000 51")

	v.sends("7ada00a1 0d000000 30000000 0a000000 3412dec0 05000000 00000000 00000000 00000100 00000000 00000004 00000000 10000000 00000000 00000000 00000000")
	v.hears("A11r", "7ada00a1 0d000000 30000000 0a000000 32x00 10000000 00000000 00000000 00000000 03020000")
	v.sends("7ada00a1 05000000 08000000 0b000000 3412dec0 05000000")
	v.hears("A12r", "7ada00a1 05000000 08000000 0b000000 8x00")
	v.sends("7ada00a1 03000000 04000000 0c000000 00000000")
	v.hears("A13r", "7ada00a1 03000000 04000000 0c000000 00000000")
	v.sends("04000000 260x00") // C7
}

// What the description has beside that order: other buffers, a key that is not there, what
// is not compressed, the long forms of closing.
func TestSessionAnswersTheOtherVectors(t *testing.T) {
	for _, buffers := range []string{"00000100 01000000", "00001000 04000000", "00002000 04000000"} { // A1b, A1c, A1d
		v := visit(t, Rules{})
		v.shakes("0b000000")
		v.opens(buffers)
	}
	v := visitOpen(t, Rules{})
	v.sends("7ada00a1 0b000000 10000000 04000000 3412dec0 05000000 04000000 00000000 75756964")
	v.hears("A5n", "7ada00a1 0b000000 10000000 04000000 00000000 00000000 00000000 00000000")
	v.sends("7ada00a1 07000000 2c000000 09000000 3412dec0 05000000 01000000 03000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000")
	v.hears("A10z", "7ada00a1 07000000 2c000000 09000000 00000000 00000000 01000000 03000000 00000000 00000000 00020000 00000000 00020000 08000000 00000000 00020000 00000000")
	v.sends("7ada00a1 07000000 2c000000 04000000 3412dec0 05000000 01000000 03000000 0000100000000000 0000010000000000 00000100 00000100 00000000")
	v.hears("zero chunk", "7ada00a1 07000000 2c000000 04000000 8x00 01000000 03000000 0000100000000000 00000100 00000000 00000100 08000000 00000000 00000100 00000000")
	v.sends("7ada00a1 05000000 10000000 0b000000 3412dec0 05000000 00000000 00000000")
	v.hears("A12b", "7ada00a1 05000000 10000000 0b000000 16x00")
	v.sends("7ada00a1 03000000 10000000 0c000000 16x00")
	v.hears("A13b", "7ada00a1 03000000 10000000 0c000000 16x00")

	v = visitOpen(t, Rules{Packing: Stored})
	v.disk.begin = bytes.Repeat([]byte("ABCD"), 128)
	v.sends("7ada00a1 07000000 2c000000 07000000 3412dec0 05000000 01000000 02000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000")
	v.hears("A8x", "7ada00a1 07000000 2c000000 07000000 00000000 00000000 01000000 00000000 00000000 00000000 00020000 00000000 00020000 00020000 00000000 "+
		hex.EncodeToString(v.disk.begin))
}

// A4e: a refusal, and the reply of zeros after it.
func TestRefusalIsTheVector(t *testing.T) {
	v := visit(t, Rules{})
	v.shakes("0b000000")
	v.sends("7ada00a1 02000000 10000000 00000000 16x00")
	v.hears("A1r", "7ada00a1 02000000 10000000 00000000 16x00")
	v.sends("7ada00a1 04000000 3c000000 03000000 01000000 00000000 00000000 00000000 02000000 1e000000 36x00 78")
	v.hears("A4e", "7ada00a1 01000000 10000000 03000000 0b000000 00000000 00000000 0b000000 63616e6e6f74206f70656e")
	v.hears("A4e", "7ada00a1 04000000 3c000000 03000000 60x00")
	v.sends(vectorOpen) // and goes on
	v.hears("A4r", "7ada00a1 04000000 3c000000 03000000 00000000 00000000 3412dec0 05000000")
}

// packs hears a fragment whose packed bytes are the packer's to choose: there are many right
// ones. head is what stands before their number.
func (v *visitor) packs(name, head string, unpack func(dst, packed []byte) error, want []byte) {
	v.t.Helper()
	v.hears(name, head)
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
		v.t.Errorf("%s: %x unpacks to %x (%v)", name, packed, got, err)
	}
}

func inflate(dst, packed []byte) error {
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

// Both runs of a fragment of 16 bytes, at its very ends.
func TestSkipZOfShortFragment(t *testing.T) {
	data := unhex(t, "6162 11x00 78797a")
	want := unhex(t, "10000000 00000000 00000000 02000000 6162 0d000000 03000000 78797a")
	if got := appendSkipZ(nil, data); !bytes.Equal(got, want) {
		t.Errorf("% x\nwant % x", got, want)
	}
}
