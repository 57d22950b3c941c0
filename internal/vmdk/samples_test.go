package vmdk_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/vmdk"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
	"github.com/decamp/decamp/test/lane"
)

// sample is a file of vmdktest.Samples and its content according to an independent reader.
type sample struct {
	file   string // name in the folder, may end in .gz or .bz2
	open   string // name of the file to open, default: file
	size   int64
	sha256 string     // SHA-256 of the content; empty if opening must fail
	data   string     // SHA-256 of the sectors that are not zero, each preceded by its offset
	kind   fault.Kind // kind of the error if opening must fail
}

var samples = []sample{
	{file: "iotest-version3.vmdk.bz2", size: 17179869184, sha256: "0859bb3397bc1d30fa979c80a289ce98bfd6c1141a64594d6f3cc8cd68218faf",
		data: "7968a164582623727ebf3d5fb990918eae0e8d8ecac85b0a1cd9f24e653cf3dd"},
	{file: "sesparse.vmdk.gz", size: 536870912, sha256: "3afa48010241335528fe402f083fc9f3a1013a49485221443a78d9a8604e2f90",
		data: "b96bd0550cb413acbd01d44936a41183bbcc2a6b484e6ac2c347ae953153f95d"},
	{file: "sesparse.vmdk.gz", open: "sesparse-desc.vmdk", size: 536870912, sha256: "3afa48010241335528fe402f083fc9f3a1013a49485221443a78d9a8604e2f90",
		data: "b96bd0550cb413acbd01d44936a41183bbcc2a6b484e6ac2c347ae953153f95d"},
	{file: "vmdk-streamoptimized.img", size: 65536, sha256: "de2f256064a0af797747c2b97505dc0b9f3df0de4f489eac731c23ae9ca9cc31",
		data: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	{file: "ttylinux-pc_i486-16.1-disk1.vmdk", kind: fault.Corrupt},
	{file: "vmdk-invalid.img", kind: fault.Corrupt},
	{file: "afl9.vmdk.bz2", kind: fault.Corrupt},
}

func TestSamples(t *testing.T) {
	folder := vmdktest.Samples(t)
	if folder == "" {
		return
	}
	found := 0
	for _, s := range samples {
		path := filepath.Join(folder, s.file)
		if _, err := os.Stat(path); err != nil {
			t.Logf("sample %s not found", path)
			continue
		}
		found++
		t.Run(s.file+s.open, func(t *testing.T) { s.check(t, folder) })
	}
	if found == 0 {
		t.Errorf("%s contains none of the samples", folder)
	}
}

// check reads the sample as a file, and as a stream if it is one.
func (s sample) check(t *testing.T, folder string) {
	dir := t.TempDir()
	name := unpack(t, filepath.Join(folder, s.file), dir)
	if s.open != "" {
		name = unpack(t, filepath.Join(folder, s.open), dir)
	}
	h, size, err := readSample(t.Context(), dir, name)
	s.checkHash(t, "file", h, size, err)
	if strings.HasPrefix(s.file, "iotest") || strings.HasPrefix(s.file, "tty") || strings.HasPrefix(s.file, "vmdk-") {
		h, size, err := streamSample(t.Context(), filepath.Join(dir, name))
		s.checkHash(t, "stream", h, size, err)
	}
}

func (s sample) checkHash(t *testing.T, as string, h *contentHash, size int64, err error) {
	t.Helper()
	if s.sha256 == "" {
		if !fault.Is(err, s.kind) || fault.HintOf(err) == "" {
			t.Errorf("as a %s: got %v error %v with hint %q, want %v", as, fault.KindOf(err), err, fault.HintOf(err), s.kind)
		}
		return
	}
	if err != nil || size != s.size {
		t.Fatalf("as a %s: got %d bytes, error %v, want %d bytes", as, size, err, s.size)
	}
	if data := hexSum(h.data); data != s.data {
		t.Errorf("as a %s: SHA-256 of the data is %s, want %s", as, data, s.data)
	}
	if sum := hexSum(h.all); lane.Slow && sum != s.sha256 {
		t.Errorf("as a %s: SHA-256 is %s, want %s", as, sum, s.sha256)
	}
}

// unpack decompresses a file into dir and returns its name there.
func unpack(t *testing.T, path, dir string) string {
	t.Helper()
	in, name, err := vmdktest.OpenSample(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() // only read
	out, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	return name
}

func readSample(ctx context.Context, dir, name string) (h *contentHash, size int64, err error) {
	d, err := vmdk.Open(ctx, vmdk.Folder(dir), name, vmdk.Options{})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	h = newHash()
	for off := int64(0); off < d.Size() && err == nil; off += hashStep {
		err = h.add(ctx, d, disk.Range{Off: off, Len: min(hashStep, d.Size()-off)})
	}
	return h, d.Size(), err
}

// streamSample reads the sample in one pass. Gaps between parts are zeros.
func streamSample(ctx context.Context, path string) (h *contentHash, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	s, err := vmdk.ReadStream(ctx, f)
	if err != nil {
		return nil, 0, err
	}
	h = newHash()
	for {
		p, err := s.Next(ctx, hashStep)
		if err == io.EOF {
			h.zeros(s.Size() - h.at)
			return h, s.Size(), nil
		}
		if err != nil {
			return nil, 0, err
		}
		h.zeros(p.Range().Off - h.at)
		if err := h.part(ctx, p); err != nil {
			return nil, 0, err
		}
	}
}

// contentHash computes the SHA-256 of the sectors that are not zero. With the build tag slow it also hashes the
// whole content: the largest sample has 16 GiB of zeros.
type contentHash struct {
	all  hash.Hash
	data hash.Hash
	buf  []byte
	zero []byte
	at   int64
}

const hashStep = 4 << 20

func newHash() *contentHash {
	return &contentHash{all: sha256.New(), data: sha256.New(), buf: make([]byte, hashStep), zero: make([]byte, hashStep)}
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

func (h *contentHash) write(b []byte) {
	if lane.Slow {
		h.all.Write(b) // cannot fail
	}
	for sector := range slices.Chunk(b, 512) {
		if !bytes.Equal(sector, h.zero[:len(sector)]) {
			h.data.Write(binary.BigEndian.AppendUint64(nil, uint64(h.at)))
			h.data.Write(sector)
		}
		h.at += int64(len(sector))
	}
}

func (h *contentHash) zeros(n int64) {
	for ; lane.Slow && n > hashStep; n -= hashStep {
		h.all.Write(h.zero)
		h.at += hashStep
	}
	if lane.Slow {
		h.all.Write(h.zero[:n])
	}
	h.at += n
}

func (h *contentHash) part(ctx context.Context, p disk.Part) error {
	defer p.Release()
	b := h.buf[:p.Range().Len]
	err := p.Fill(ctx, b)
	h.write(b)
	return err
}

// add hashes the content of d in r. It reads data extents only.
func (h *contentHash) add(ctx context.Context, d disk.Source, r disk.Range) error {
	extents, err := d.Extents(ctx, r)
	for _, e := range extents {
		if e.Kind == disk.Zero {
			h.zeros(e.Len)
			continue
		}
		b := h.buf[:e.Len]
		if err := d.ReadAt(ctx, b, e.Off); err != nil {
			return err
		}
		h.write(b)
	}
	return err
}
