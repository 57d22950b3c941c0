package vmdk_test

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/vmdk"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
)

// streamRecipes returns the recipes for which isStream is true.
func streamRecipes() (out []vmdktest.Recipe) {
	for _, r := range vmdktest.Recipes() {
		if isStream(r) {
			out = append(out, r)
		}
	}
	return out
}

// isStream reports whether r is one streamOptimized file with its grains in order.
func isStream(r vmdktest.Recipe) bool {
	l := r.Chain.Layers
	return len(l) == 1 && l[0].Format == vmdktest.Stream && l[0].Layout <= vmdktest.Padded
}

// receiveStream receives a stream and compares it with want.
func receiveStream(t *testing.T, r io.Reader, want disk.Source, o blockcopy.Options) (*vmdk.Stream, error) {
	t.Helper()
	s, err := vmdk.ReadStream(t.Context(), r)
	if err != nil {
		return nil, err
	}
	check := disk.NewCheck(want)
	if _, err := blockcopy.Receive(t.Context(), s, check, o); err != nil {
		return s, err
	}
	return s, check.Finish(t.Context())
}

// readInOnePass reads a stream in one pass and compares it with its overlay.
func readInOnePass(t *testing.T, d *vmdktest.Disk) {
	t.Helper()
	f, err := os.Open(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := receiveStream(t, f, d.Want, blockcopy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Warnings()) > 0 || s.Descriptor() == nil {
		t.Errorf("descriptor %v, warnings %q", s.Descriptor(), s.Warnings())
	}
}

func TestStreamAcceptsShortReads(t *testing.T) {
	for _, r := range streamRecipes() {
		d, b := smallStream(t, r, 39)
		for name, in := range map[string]io.Reader{
			"in halves":      iotest.HalfReader(bytes.NewReader(b)),
			"byte by byte":   iotest.OneByteReader(bytes.NewReader(b)),
			"EOF with data":  iotest.DataErrReader(bytes.NewReader(b)),
			"zeros after it": io.MultiReader(bytes.NewReader(b), bytes.NewReader(make([]byte, 3000))),
		} {
			if _, err := receiveStream(t, in, d.Want, blockcopy.Options{Window: 1 << 20, Readers: 1}); err != nil {
				t.Fatalf("%s, %s: %v", r.Name, name, err)
			}
		}
	}
}

// smallStream writes a stream like the recipe, with the given number of grains and a partial one.
func smallStream(t *testing.T, r vmdktest.Recipe, grains int64) (*vmdktest.Disk, []byte) {
	t.Helper()
	l := r.Chain.Layers[0]
	l.Sectors, l.Data = grains*128+5, max(l.Data, 0.5)
	c := vmdktest.Chain{Seed: r.Chain.Seed, Layers: []vmdktest.Layer{l}}
	return writeChain(t, c), chainBytes(t, c)
}

// chainBytes returns the content of the file of a chain of one layer.
func chainBytes(t testing.TB, c vmdktest.Chain) []byte {
	t.Helper()
	d, err := c.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// handmade writes streams that the recipes do not cover: grains in any order, wrong tables, markers
// in unusual positions. Like vmdktest, it shares no code with the reader.
type handmade struct {
	bytes.Buffer
	capacity int64
	places   map[int64]uint32
}

const handGrain = 128 // grain size in sectors

// newHandmade starts a stream of capacity sectors. edit may change the header.
func newHandmade(capacity int64, edit func(h []byte)) *handmade {
	w := &handmade{capacity: capacity, places: map[int64]uint32{}}
	w.Write(w.header(-1, edit))
	text := fmt.Sprintf("# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"streamOptimized\"\nRW %d SPARSE \"x.vmdk\"\n", capacity)
	w.WriteString(text)
	w.pad()
	return w
}

func (w *handmade) header(gd int64, edit func(h []byte)) []byte {
	h := make([]byte, 512)
	copy(h, "KDMV\x03\x00\x00\x00\x01\x00\x03\x00")
	for at, v := range map[int]int64{12: w.capacity, 20: handGrain, 28: 1, 36: 1, 56: gd, 64: 2} {
		binary.LittleEndian.PutUint64(h[at:], uint64(v))
	}
	binary.LittleEndian.PutUint32(h[44:], 512)
	copy(h[73:], "\n \r\n\x01")
	if edit != nil {
		edit(h)
	}
	return h
}

func (w *handmade) sector() int64 { return int64(w.Len()) / 512 }
func (w *handmade) pad()          { w.Write(make([]byte, -w.Len()&511)) }

func (w *handmade) grain(n int64, content []byte) {
	w.places[n] = uint32(w.sector())
	var z bytes.Buffer
	zw := zlib.NewWriter(&z)
	zw.Write(content) // writes to memory, cannot fail
	zw.Close()
	w.raw(n*handGrain, z.Bytes())
}

func (w *handmade) raw(sector int64, packed []byte) {
	head := binary.LittleEndian.AppendUint64(nil, uint64(sector))
	w.Write(binary.LittleEndian.AppendUint32(head, uint32(len(packed))))
	w.Write(packed)
	w.pad()
}

func (w *handmade) marker(count int64, kind uint32) {
	m := make([]byte, 512)
	binary.LittleEndian.PutUint64(m, uint64(count))
	binary.LittleEndian.PutUint32(m[12:], kind)
	w.Write(m)
}

// end writes the only table of the disk, the directory, the footer and the end marker.
func (w *handmade) end() []byte {
	w.marker(4, 1)
	table, gt := make([]byte, 2048), w.sector()
	for n, at := range w.places {
		binary.LittleEndian.PutUint32(table[n*4:], at)
	}
	w.Write(table)
	w.marker(1, 2)
	gd := w.sector()
	w.Write(binary.LittleEndian.AppendUint32(nil, uint32(gt)))
	w.pad()
	w.marker(1, 3)
	w.Write(w.header(gd, nil))
	w.marker(0, 0)
	return w.Bytes()
}

func fullGrain(b byte) []byte { return bytes.Repeat([]byte{b}, handGrain*512) }

// wholeStream returns a stream of four grains. The caller writes its end.
func wholeStream() *handmade {
	w := newHandmade(10*handGrain, nil)
	for n := range int64(4) {
		w.grain(2*n, fullGrain(byte(n)+1))
	}
	return w
}

func TestStreamRefuses(t *testing.T) {
	set64 := func(at int, v int64) func([]byte) {
		return func(h []byte) { binary.LittleEndian.PutUint64(h[at:], uint64(v)) }
	}
	for _, c := range []struct {
		name   string
		b      func() []byte
		kind   fault.Kind
		text   string
		recall bool
	}{
		{"nothing", func() []byte { return nil }, fault.Unsupported, "it has 0 bytes", false},
		{"a raw disk", func() []byte { return make([]byte, 4096) }, fault.Unsupported, "00 00 00 00", false},
		{"a sparse disk", func() []byte { return newHandmade(1280, func(h []byte) { h[10], h[77] = 0, 0 }).Bytes() }, fault.Unsupported, "not compressed", false},
		{"another algorithm", func() []byte { return newHandmade(1280, func(h []byte) { h[77] = 2 }).Bytes() }, fault.Unsupported, "compression 2", false},
		{"an unknown flag", func() []byte { return newHandmade(1280, func(h []byte) { h[10] |= 8 }).Bytes() }, fault.Unsupported, "flags 0xb0001", false},
		{"no markers", func() []byte { return newHandmade(1280, func(h []byte) { h[10] = 1 }).Bytes() }, fault.Unsupported, "no markers", false},
		{"version 4", func() []byte { return newHandmade(1280, func(h []byte) { h[4] = 4 }).Bytes() }, fault.Unsupported, "version 4", false},
		{"grains of 2 MiB", func() []byte { return newHandmade(1280, set64(20, 4096)).Bytes() }, fault.Unsupported, "4096 sectors", false},
		{"an absurd directory", func() []byte { return newHandmade(1280, set64(12, 1<<53)).Bytes() }, fault.Corrupt, "directory of", false},
		{"an absurd descriptor", func() []byte { return newHandmade(1280, set64(36, 1<<40)).Bytes() }, fault.Corrupt, "descriptor", false},
		{"no first grain", func() []byte { return newHandmade(1280, set64(64, 1<<40)).Bytes() }, fault.Corrupt, "before the first grain", false},
		{"a delta", func() []byte {
			return bytes.Replace(wholeStream().end(), []byte("parentCID=ffffffff"), []byte("parentCID=00000001"), 1)
		}, fault.Unsupported, "snapshot delta", false},
		{"grains swapped", func() []byte {
			w := newHandmade(1280, nil)
			w.grain(2, fullGrain(2))
			w.grain(1, fullGrain(1))
			return w.end()
		}, fault.Unsupported, "comes after that at sector 256", true},
		{"a grain twice", func() []byte { w := wholeStream(); w.grain(6, fullGrain(9)); return w.end() }, fault.Unsupported, "comes after", true},
		{"a grain not in the tables", func() []byte { w := wholeStream(); delete(w.places, 4); return w.end() }, fault.Corrupt, "does not match", true},
		{"a grain lost", func() []byte { w := wholeStream(); w.places[5] = 7; return w.end() }, fault.Corrupt, "does not match", true},
		{"no table", func() []byte {
			w := wholeStream()
			w.marker(1, 2)
			gd := w.sector()
			w.Write(binary.LittleEndian.AppendUint32(nil, 77))
			w.pad()
			w.marker(1, 3)
			w.Write(w.header(gd, nil))
			w.marker(0, 0)
			return w.Bytes()
		}, fault.Corrupt, "at sector 77, but the stream has none there", true},
		{"a grain past the end of the disk", func() []byte { w := wholeStream(); w.grain(10, fullGrain(1)); return w.end() }, fault.Corrupt, "has sector 1280", false},
		{"a grain between grains", func() []byte { w := wholeStream(); w.raw(7*handGrain+1, []byte{1}); return w.end() }, fault.Corrupt, "has sector 897", false},
		{"a giant grain", func() []byte { w := wholeStream(); w.raw(7*handGrain, make([]byte, 140_000)); return w.end() }, fault.Corrupt, "140000 packed bytes", false},
		{"a grain without a zlib header", func() []byte {
			w := wholeStream()
			w.places[7] = uint32(w.sector())
			w.raw(7*handGrain, []byte("hello world"))
			return w.end()
		}, fault.Corrupt, "zlib header", false},
		{"a short grain", func() []byte { w := wholeStream(); w.grain(7, []byte{1}); return w.end() }, fault.Corrupt, "less than a grain", false},
		{"a long grain", func() []byte { w := wholeStream(); w.grain(7, make([]byte, 70_000)); return w.end() }, fault.Corrupt, "more than fits", false},
		{"a changed grain", func() []byte {
			w := wholeStream()
			w.grain(7, fullGrain(1))
			b := w.Bytes()
			b[int64(w.places[7])*512+12+2+5] ^= 1
			return w.end()
		}, fault.Corrupt, "", false},
		{"an unknown marker", func() []byte { w := wholeStream(); w.marker(1, 9); return w.end() }, fault.Corrupt, "type 9", false},
		{"a table too long", func() []byte { w := wholeStream(); w.marker(5, 1); return w.end() }, fault.Corrupt, "5 sectors, not 4", false},
		{"a directory too long", func() []byte { w := wholeStream(); w.marker(1<<40, 2); return w.end() }, fault.Corrupt, "sectors, not 1", false},
		{"progress without end", func() []byte { w := wholeStream(); w.marker(1<<40, 4); return w.Bytes() }, fault.Corrupt, "after 4 whole grains", false},
		{"a footer of another disk", func() []byte {
			w := wholeStream()
			w.marker(1, 3)
			w.Write(w.header(9, set64(12, 99)))
			return w.end()
		}, fault.Corrupt, "contradict", false},
		{"a footer that points elsewhere", func() []byte {
			b := wholeStream().end()
			b[len(b)-1024+56]++
			return b
		}, fault.Corrupt, "footer has", false},
		{"data after the end", func() []byte { return append(wholeStream().end(), 1) }, fault.Corrupt, "data follows", false},
		{"no footer", func() []byte { w := wholeStream(); w.marker(0, 0); return w.Bytes() }, fault.Corrupt, "before its footer, after 4 whole grains", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := drainAll(t, bytes.NewReader(c.b()))
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %v (%v), want %v with %q", err, fault.KindOf(err), c.kind, c.text)
			}
			if fault.HintOf(err) == "" {
				t.Errorf("%v: no hint", err)
			}
			if errors.Is(err, disk.ErrRecalled) != c.recall {
				t.Errorf("%v: is ErrRecalled: %v, want %v", err, !c.recall, c.recall)
			}
		})
	}
}

// drainAll reads a stream to its end and fills every part.
func drainAll(t testing.TB, r io.Reader) error {
	t.Helper()
	const window = 1 << 20
	s, err := vmdk.ReadStream(t.Context(), r)
	for err == nil {
		var p disk.Part
		if p, err = s.Next(t.Context(), window); err == nil {
			err = p.Fill(t.Context(), make([]byte, p.Range().Len))
			p.Release()
		}
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// A stream that is truncated at any byte is refused. Only the padding after the last byte may be missing.
func TestTruncatedStreamIsRefused(t *testing.T) {
	for _, r := range streamRecipes() {
		t.Run(r.Name, func(t *testing.T) {
			_, b := smallStream(t, r, 6)
			end := len(bytes.TrimRight(b, "\x00"))
			if l := r.Chain.Layers[0].Layout; l == vmdktest.UpFront || l == vmdktest.Padded {
				end++ // the tables at the front list all grains, only the padding may be missing
			}
			for cut := 0; cut < end; cut += 1 + cut%1511 {
				err := drainAll(t, bytes.NewReader(b[:cut]))
				if kind := fault.KindOf(err); err == nil || kind != fault.Corrupt && cut >= 512 {
					t.Fatalf("cut at %d of %d: %v", cut, len(b), err)
				}
				if errors.Is(err, disk.ErrRecalled) {
					t.Fatalf("cut at %d of %d: got ErrRecalled: %v", cut, len(b), err)
				}
			}
		})
	}
}

func TestTruncatedStreamReportsTheNumberOfWholeGrains(t *testing.T) {
	w := wholeStream()
	third := int(w.places[4])*512 + 100
	err := drainAll(t, bytes.NewReader(w.end()[:third]))
	if want := fmt.Sprintf("ends at byte %d, within a grain, after 2 whole grains", third); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, want %q", err, want)
	}
}

// An error of the input keeps its kind: a lost connection stays a transient error.
func TestStreamReturnsTheErrorOfItsInput(t *testing.T) {
	b := wholeStream().end()
	broken := fault.New(fault.Transient, "connection reset")
	err := drainAll(t, io.MultiReader(bytes.NewReader(b[:3000]), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "at byte 3000") {
		t.Fatalf("got %v, want %v at byte 3000", err, broken)
	}
}

// If a stream is interrupted, it is sent again from its start. Chunks that are already safe are skipped.
func TestStreamResumesFromItsStart(t *testing.T) {
	d, b := smallStream(t, streamRecipes()[0], 200)
	log, err := manifest.Create(filepath.Join(t.TempDir(), "manifest"), manifest.Info{Disk: "disk 2000", Size: d.Want.Size()})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	path := filepath.Join(t.TempDir(), "image")
	dst, err := rawfile.Create(path, d.Want.Size(), rawfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	o := blockcopy.Options{Manifest: log, Window: 1 << 20}
	half := bytes.NewReader(b[:len(b)/2])
	if _, err := receiveInto(t, half, dst, o); !fault.Is(err, fault.Corrupt) {
		t.Fatalf("half a stream: %v", err)
	}
	safe := log.Chunks() - log.Missing()
	if safe == 0 || log.Complete() {
		t.Fatalf("%d of %d chunks are safe after half a stream", safe, log.Chunks())
	}
	res, err := receiveInto(t, bytes.NewReader(b), dst, o)
	if err != nil {
		t.Fatal(err)
	}
	if res.Skipped != safe*manifest.ChunkSize || !log.Complete() {
		t.Errorf("%d bytes were skipped, want %d safe chunks; %d chunks are missing", res.Skipped, safe, log.Missing())
	}
	if err := dst.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, d.Want.Size())
	if err := d.Want.ReadAt(t.Context(), want, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the image differs from the overlay")
	}
}

func receiveInto(t *testing.T, r io.Reader, dst disk.Target, o blockcopy.Options) (blockcopy.Result, error) {
	t.Helper()
	s, err := vmdk.ReadStream(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return blockcopy.Receive(t.Context(), s, dst, o)
}

// Reading a damaged stream as a file fails, either at Open or when the grain is read.
func TestStreamFileRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		b    func() []byte
		text string
	}{
		{"cut in a grain", func() []byte { w := wholeStream(); b := w.end(); return b[:int(w.places[4])*512+100] }, "before its footer, after 2 whole grains"},
		{"cut between grains", func() []byte { w := wholeStream(); b := w.end(); return b[:int(w.places[4])*512] }, "before its footer, after 2 whole grains"},
		{"cut before the footer", func() []byte { b := wholeStream().end(); return b[:len(b)-1536] }, "before its footer, after 4 whole grains"},
		{"a footer of another disk", func() []byte { b := wholeStream().end(); b[len(b)-1024+12]++; return b }, "contradict"},
		{"a footer without directory", func() []byte { b := wholeStream().end(); clear(b[len(b)-1024+56:][:8]); return b }, "cannot be at sector 0"},
		{"a directory past the end", func() []byte { b := wholeStream().end(); b[len(b)-1024+58]++; return b }, "before its grain directory"},
		{"a table past the end", func() []byte { b := wholeStream().end(); b[len(b)-2048+3]++; return b }, "beyond the end of the file"},
		{"an absurd directory", func() []byte {
			return newHandmade(1280, func(h []byte) { binary.LittleEndian.PutUint64(h[12:], 1<<53) }).Bytes()
		}, "directory of"},
		{"grains swapped in the table", func() []byte {
			w := wholeStream()
			w.places[0], w.places[2] = w.places[2], w.places[0]
			return w.end()
		}, "its table has"},
		{"a table entry without a grain", func() []byte { w := wholeStream(); w.places[1] = 1; return w.end() }, ""},
		{"a changed grain", func() []byte { w := wholeStream(); w.Bytes()[int(w.places[0])*512+12+2+5] ^= 1; return w.end() }, "grain of sector 0"},
		{"another algorithm", func() []byte { return newHandmade(1280, func(h []byte) { h[77] = 2 }).Bytes() }, "compression 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := vmdk.Open(t.Context(), memFile(c.b()), "x.vmdk", vmdk.Options{})
			if err == nil {
				defer d.Close()
				err = d.ReadAt(t.Context(), make([]byte, d.Size()), 0)
			}
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %v, want %q", err, c.text)
			}
			if kind := fault.KindOf(err); kind != fault.Corrupt && kind != fault.Unsupported || fault.HintOf(err) == "" {
				t.Errorf("%v: kind %v, hint %q", err, kind, fault.HintOf(err))
			}
		})
	}
}

// Reads that begin and end within compressed grains return the right bytes.
func TestPartsOfACompressedGrain(t *testing.T) {
	w := newHandmade(3*handGrain+9, nil)
	want := make([]byte, (3*handGrain+9)*512)
	for n := range int64(4) {
		g := fullGrain(0)
		for i := range g {
			g[i] = byte(i*7>>3) + byte(n)
		}
		copy(want[n*handGrain*512:], g)
		w.grain(n, g)
	}
	d, err := vmdk.Open(t.Context(), memFile(w.end()), "x.vmdk", vmdk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for off := 0; off < len(want); off += 1777 {
		for _, n := range []int{1, 512, 5000, 70_000} {
			got := make([]byte, min(n, len(want)-off))
			if err := d.ReadAt(t.Context(), got, int64(off)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want[off:off+len(got)]) {
				t.Fatalf("%d bytes at %d differ", len(got), off)
			}
		}
	}
}

// qemu-img convert -W writes grains out of order. Such a file is readable at random, but not in one pass.
func TestScatteredStreamIsReadableAsAFileOnly(t *testing.T) {
	l := vmdktest.Layer{Format: vmdktest.Stream, Layout: vmdktest.Scattered, Sectors: 60 * handGrain, Data: 0.7}
	d := writeChain(t, vmdktest.Chain{Seed: 5, Layers: []vmdktest.Layer{l}})
	if err := d.Want.Compare(t.Context(), openDisk(t, d.Folder, d.Name)); err != nil {
		t.Errorf("as a file: %v", err)
	}
	f, err := os.Open(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = drainAll(t, f)
	if !errors.Is(err, disk.ErrRecalled) || !strings.Contains(fault.HintOf(err), "save the stream to a file") {
		t.Errorf("as a stream: got %v, hint %q, want ErrRecalled", err, fault.HintOf(err))
	}
}
