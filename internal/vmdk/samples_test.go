package vmdk_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/vmdk"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
)

// sample is one file of vmdktest.Samples and what it must read as, by an independent reader.
type sample struct {
	file   string // as it lies in the folder: may end in .gz or .bz2
	open   string // what to open, if not the file itself
	size   int64
	sha256 string     // of the content; empty: it must be refused
	kind   fault.Kind // then
}

var samples = []sample{
	{file: "iotest-version3.vmdk.bz2", size: 17179869184, sha256: "0859bb3397bc1d30fa979c80a289ce98bfd6c1141a64594d6f3cc8cd68218faf"},
	{file: "sesparse.vmdk.gz", size: 536870912, sha256: "3afa48010241335528fe402f083fc9f3a1013a49485221443a78d9a8604e2f90"},
	{file: "sesparse.vmdk.gz", open: "sesparse-desc.vmdk", size: 536870912, sha256: "3afa48010241335528fe402f083fc9f3a1013a49485221443a78d9a8604e2f90"},
	{file: "vmdk-streamoptimized.img", size: 65536, sha256: "de2f256064a0af797747c2b97505dc0b9f3df0de4f489eac731c23ae9ca9cc31"},
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
			t.Logf("no sample %s", path)
			continue
		}
		found++
		t.Run(s.file+s.open, func(t *testing.T) { s.check(t, folder) })
	}
	if found == 0 {
		t.Errorf("%s holds none of the samples", folder)
	}
}

// check reads the sample as a file, and as a stream if it is one.
func (s sample) check(t *testing.T, folder string) {
	dir := t.TempDir()
	name := unpack(t, filepath.Join(folder, s.file), dir)
	if s.open != "" {
		name = unpack(t, filepath.Join(folder, s.open), dir)
	}
	sum, size, err := readSample(t.Context(), dir, name)
	s.judge(t, "file", sum, size, err)
	if strings.HasPrefix(s.file, "iotest") || strings.HasPrefix(s.file, "tty") || strings.HasPrefix(s.file, "vmdk-") {
		sum, size, err := streamSample(t.Context(), filepath.Join(dir, name))
		s.judge(t, "stream", sum, size, err)
	}
}

func (s sample) judge(t *testing.T, as, sum string, size int64, err error) {
	t.Helper()
	if s.sha256 == "" {
		if !fault.Is(err, s.kind) || fault.HintOf(err) == "" {
			t.Errorf("as a %s: got %v error %v with remedy %q, want %v", as, fault.KindOf(err), err, fault.HintOf(err), s.kind)
		}
		return
	}
	if err != nil || sum != s.sha256 || size != s.size {
		t.Errorf("as a %s: %d bytes with SHA-256 %s, %v", as, size, sum, err)
	}
}

// unpack puts a file into dir, decompressed, and returns its name there.
func unpack(t *testing.T, path, dir string) string {
	t.Helper()
	in, name, err := vmdktest.OpenSample(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() // nothing was written
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

func readSample(ctx context.Context, dir, name string) (sum string, size int64, err error) {
	d, err := vmdk.Open(ctx, vmdk.Folder(dir), name, vmdk.Options{})
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	h := newHash()
	for off := int64(0); off < d.Size() && err == nil; off += hashStep {
		err = h.add(ctx, d, disk.Range{Off: off, Len: min(hashStep, d.Size()-off)})
	}
	return h.String(), d.Size(), err
}

// streamSample reads the sample in one pass; what lies between parts is zeros.
func streamSample(ctx context.Context, path string) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	s, err := vmdk.ReadStream(ctx, f)
	if err != nil {
		return "", 0, err
	}
	h := newHash()
	for {
		p, err := s.Next(ctx, hashStep)
		if err == io.EOF {
			h.zeros(s.Size() - h.at)
			return h.String(), s.Size(), nil
		}
		if err != nil {
			return "", 0, err
		}
		h.zeros(p.Range().Off - h.at)
		if err := h.part(ctx, p); err != nil {
			return "", 0, err
		}
	}
}

// contentHash is SHA-256 of a disk's content, in order.
type contentHash struct {
	sha  hash.Hash
	buf  []byte
	zero []byte
	at   int64
}

const hashStep = 4 << 20

func newHash() *contentHash {
	return &contentHash{sha: sha256.New(), buf: make([]byte, hashStep), zero: make([]byte, hashStep)}
}

func (h *contentHash) String() string { return hex.EncodeToString(h.sha.Sum(nil)) }

func (h *contentHash) write(b []byte) {
	h.sha.Write(b) // never fails
	h.at += int64(len(b))
}

func (h *contentHash) zeros(n int64) {
	for ; n > 0; n -= hashStep {
		h.write(h.zero[:min(n, hashStep)])
	}
}

func (h *contentHash) part(ctx context.Context, p disk.Part) error {
	defer p.Release()
	b := h.buf[:p.Range().Len]
	err := p.Fill(ctx, b)
	h.write(b)
	return err
}

// add reads what d calls data of r.
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
