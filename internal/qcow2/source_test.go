package qcow2

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/test/lane"
)

func TestSourceConformance(t *testing.T) {
	disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
		path := filepath.Join(t.TempDir(), "disk.qcow2")
		mustWriteImage(t, path, want)
		return openDirect(t, path)
	})
}

// slowKinds are the cases of TestSourceReadsQEMUImages that run only with the build tag slow. Other cases,
// TestChains, TestModifiedImages and TestClusterCacheIsLimited cover their options.
var slowKinds = map[string]bool{
	"version 2": true, "512-byte clusters": true, "2 MiB clusters": true, "lazy refcounts": true,
	"metadata allocated": true, "no zero detection": true, "compressed": true, "compressed, 2 MiB": true, "compressed, v2": true,
	"compressed, 512 B": true, "zstd": true, "zstd, 2 MiB": true, "subclusters": true, "subclusters, 16 K": true, "subclusters, zlib": true, "all allocated": true,
}

// TestSourceReadsQEMUImages runs the conformance suite on images of qemu-img.
func TestSourceReadsQEMUImages(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	skipWithout(t, "qemu-img")
	for name, options := range map[string][]string{
		"default":            nil,
		"version 2":          {"-o", "compat=0.10"},
		"512-byte clusters":  {"-o", "cluster_size=512"},
		"2 MiB clusters":     {"-o", "cluster_size=2M"},
		"one-bit refcounts":  {"-o", "refcount_bits=1"},
		"metadata allocated": {"-o", "preallocation=metadata"},
		"no zero detection":  {"-S", "0"},
		"compressed":         {"-c"},
		"compressed, 4 KiB":  {"-c", "-o", "cluster_size=4k"},
		"compressed, 2 MiB":  {"-c", "-o", "cluster_size=2M"},
		"compressed, v2":     {"-c", "-o", "compat=0.10"},
		"compressed, 512 B":  {"-c", "-o", "cluster_size=512"},
		"zstd":               {"-c", "-o", "compression_type=zstd"},
		"zstd, 4 KiB":        {"-c", "-o", "compression_type=zstd,cluster_size=4k"},
		"zstd, 2 MiB":        {"-c", "-o", "compression_type=zstd,cluster_size=2M"},
		"subclusters":        {"-o", "extended_l2=on"},
		"subclusters, 16 K":  {"-o", "extended_l2=on,cluster_size=16k"},
		"subclusters, 2 MiB": {"-o", "extended_l2=on,cluster_size=2M"},
		"subclusters, zlib":  {"-c", "-o", "extended_l2=on"},
		"subclusters, zstd":  {"-c", "-o", "extended_l2=on,compression_type=zstd"},
		"all allocated":      {"-o", "preallocation=falloc"},
		"all written":        {"-o", "preallocation=full,cluster_size=4k"},
		"lazy refcounts":     {"-o", "lazy_refcounts=on"},
	} {
		if slowKinds[name] && !lane.Slow {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
				path := filepath.Join(dir, strconv.FormatInt(want.Size(), 10)) // the suite has one disk of each size
				if _, err := os.Stat(path); err != nil {
					args := append([]string{"convert", "-f", "raw", "-O", "qcow2"}, options...)
					qemuImg(t, append(args, writeRaw(t, want), path)...)
				}
				return openDirect(t, path)
			})
		})
	}
}

// TestZeroClusters reads an image in which qemu-io wrote data and zero clusters.
func TestZeroClusters(t *testing.T) {
	skipWithout(t, "qemu-io")
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	qemuImg(t, "create", "-q", "-f", "qcow2", path, "8M")
	out, err := exec.Command("qemu-io", "-f", "qcow2", "-c", "write -P 5 0 4M", "-c", "write -z 1M 1M", "-c", "write -z 6M 64k", path).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-io: %v\n%s", err, out)
	}
	want := make(memory, 8<<20)
	for i := range 4 << 20 {
		if i < 1<<20 || i >= 2<<20 {
			want[i] = 5
		}
	}
	readBack(t, path, want)
	extents, err := openDirect(t, path).Extents(t.Context(), disk.Range{Len: 8 << 20})
	if err != nil || len(extents) != 4 || extents[1] != (disk.Extent{Range: disk.Range{Off: 1 << 20, Len: 1 << 20}, Kind: disk.Zero}) {
		t.Errorf("extents %v, %v", extents, err)
	}
}

func openDirect(t *testing.T, path string) *Source {
	t.Helper()
	src, err := OpenSource(path, SourceOptions{Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func TestUnsupportedFeaturesAreRefused(t *testing.T) {
	skipWithout(t, "qemu-img")
	dir := t.TempDir()
	backing := filepath.Join(dir, "backing.qcow2")
	qemuImg(t, "create", "-q", "-f", "qcow2", backing, "1M")
	for want, args := range map[string][]string{
		"backing file": {"-b", backing, "-F", "qcow2"},
		"another file": {"-o", "data_file=" + filepath.Join(dir, "data")},
		"encrypted":    {"--object", "secret,id=s,data=x", "-o", "encrypt.format=aes,encrypt.key-secret=s"},
	} {
		path := filepath.Join(dir, "is "+want)
		qemuImg(t, append(append([]string{"create", "-q", "-f", "qcow2"}, args...), path, "1M")...)
		_, err := OpenSource(path, SourceOptions{})
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), want) || !strings.Contains(fault.HintOf(err), want+"'") {
			t.Errorf("feature %q: got %v, want an unsupported error with a command", want, err)
		}
	}
}

// smallImage returns a finished image of a disk of size bytes, and its layout.
func smallImage(t testing.TB, size int64) ([]byte, layout) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	mustWriteImage(t, path, disk.NewPattern(size))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLayout(size)
	if err != nil {
		t.Fatal(err)
	}
	return b, l
}

// TestDamagedImages changes one number of an image in each case. The error describes the damage.
func TestDamagedImages(t *testing.T) {
	good, l := smallImage(t, 3<<20)
	l2 := l.l2.Off + 8*5 // offset of the entry of cluster 5
	for name, c := range map[string]struct {
		at    int64
		value uint64
		want  string
		kind  fault.Kind
	}{
		"magic":              {0, 0x514649fa_00000003, "no qcow2 header", fault.Corrupt},
		"version 4":          {0, magic<<32 | 4, "version 4", fault.Unsupported},
		"version 1":          {0, magic<<32 | 1, "version 1", fault.Unsupported},
		"tiny clusters":      {16, 8, "1<<8", fault.Corrupt},
		"huge clusters":      {16, 22, "1<<22", fault.Corrupt},
		"negative size":      {24, 1 << 63, "size", fault.Corrupt},
		"huge size":          {24, 1<<63 - 1<<20, "can map", fault.Corrupt},
		"size beyond L1":     {24, 600 << 20, "L1 table has 1 entries", fault.Corrupt},
		"encryption":         {32, 1<<32 | 1, "encrypted", fault.Unsupported},
		"L1 of 4 G entries":  {32, 1<<32 - 1, "L1 table has 4294967295", fault.Corrupt},
		"L1 in the header":   {40, 0, "L1 table is at", fault.Corrupt},
		"L1 between":         {40, 512, "L1 table is at", fault.Corrupt},
		"L1 outside":         {40, 1 << 40, "outside the file", fault.Corrupt},
		"L1 far outside":     {40, 1<<64 - 1<<16, "L1 table is at", fault.Corrupt},
		"L1 in refcounts":    {40, uint64(l.refTable.Off), "overlap", fault.Corrupt},
		"refcounts between":  {48, 512, "refcount table", fault.Corrupt},
		"refcounts huge":     {56, 1 << 40, "refcount table", fault.Corrupt},
		"zstd unnamed":       {72, featureCompression, "too few to name", fault.Corrupt},
		"long header":        {96, 4<<32 | 65544, "more than a cluster", fault.Corrupt},
		"backing file":       {12, 4096<<32 | 5, "backing file", fault.Unsupported},
		"name too long":      {12, 4096<<32 | 1024, "name of its backing", fault.Corrupt},
		"truncated name":     {12, 65535<<32 | 5, "name of its backing", fault.Corrupt},
		"name far away":      {12, 1<<63 | 5, "name of its backing", fault.Corrupt},
		"name in the header": {12, 100<<32 | 5, "name of its backing", fault.Corrupt},
		"corrupt":            {72, featureCorrupt, "marked it", fault.Corrupt},
		"unknown feature":    {72, 1 << 40, "not known", fault.Unsupported},
		"short header":       {96, 4<<32 | 100, "shorter", fault.Corrupt},
		"L1 entry reserved":  {l.l1.Off, uint64(l.l2.Off) | copied | 1<<60, "L1 entry 0", fault.Corrupt},
		"L1 entry between":   {l.l1.Off, uint64(l.l2.Off+512) | copied, "L1 entry 0", fault.Corrupt},
		"L1 entry outside":   {l.l1.Off, 1 << 40, "L1 entry 0", fault.Corrupt},
		"L2 entry reserved":  {l2, uint64(l.data.Off) | 1<<3, "cluster 5", fault.Corrupt},
		"L2 entry between":   {l2, uint64(l.data.Off + 512), "cluster 5", fault.Corrupt},
		"data in an L2":      {l2, uint64(l.l2.Off), "in a table", fault.Corrupt},
		"data in the L1":     {l2, uint64(l.l1.Off), "in a table", fault.Corrupt},
		"packed in an L2":    {l2, flagCompressed | uint64(l.l2.Off+100), "in a table", fault.Corrupt},
		"L2 entry outside":   {l2, 1 << 40, "after the end", fault.Corrupt},
		"compressed outside": {l2, flagCompressed | 1<<40, "compressed cluster 5", fault.Corrupt},
		"compressed header":  {l2, flagCompressed | 100, "compressed cluster 5", fault.Corrupt},
		"not compressed":     {l2, flagCompressed | uint64(l.data.Off), "of 65536 bytes", fault.Corrupt},
	} {
		bad := append(memory(nil), good...)
		binary.BigEndian.PutUint64(bad[c.at:], c.value)
		_, err := readImage(t, bad)
		if err == nil || !strings.Contains(err.Error(), c.want) || !fault.Is(err, c.kind) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v (%v), want %q", name, err, fault.KindOf(err), c.want)
		}
	}
}

// openImage opens an image in memory.
func openImage(image memory) (*Source, error) { return openChain(image, "disk.qcow2", SourceOptions{}) }

// readImage reads the whole disk of an image.
func readImage(t testing.TB, image memory) ([]byte, error) {
	src, err := openImage(image)
	if err != nil {
		return nil, err
	}
	p := make([]byte, src.Size())
	return p, src.ReadAt(t.Context(), p, 0)
}

// TestTruncationIsDetected truncates an image at every multiple of 32 KiB.
func TestTruncationIsDetected(t *testing.T) {
	good, l := smallImage(t, 3<<20)
	last := l.data.End() - clusterSize // a part of the last cluster may be missing, see readStandard
	for end := int64(0); end <= last; end += clusterSize / 2 {
		if _, err := readImage(t, good[:end]); !fault.Is(err, fault.Corrupt) {
			t.Errorf("truncated at %d: got %v, want a corrupt error", end, err)
		}
	}
	if _, err := readImage(t, good); err != nil {
		t.Errorf("complete image: %v", err)
	}
}

// TestFlipsInTables flips each bit of the header and of the mapping tables. This never causes a panic or an
// error without a remedy. The format has no checksums, so a flip can map other data of the file without an
// error; the manifest detects it.
func TestFlipsInTables(t *testing.T) {
	image, l := smallImage(t, 2*clusterSize)
	for _, r := range []disk.Range{{Len: headerV3}, {Off: l.l1.Off, Len: 8}, {Off: l.l2.Off, Len: 16}} {
		for bit := r.Off * 8; bit < r.End()*8; bit++ {
			image[bit/8] ^= 1 << (bit % 8)
			if _, err := readImage(t, image); err != nil && fault.HintOf(err) == "" {
				t.Errorf("bit %d of byte %d: %v", bit%8, bit/8, err)
			}
			image[bit/8] ^= 1 << (bit % 8)
		}
	}
}
