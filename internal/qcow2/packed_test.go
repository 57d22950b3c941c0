package qcow2

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/test/lane"
)

// countingFile counts the reads of a file and their bytes.
type countingFile struct {
	memory
	calls, bytes atomic.Int64
}

func (c *countingFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.calls.Add(1)
	c.bytes.Add(int64(len(p)))
	return c.memory.ReadAt(ctx, p, off)
}

// packedImage returns a compressed image of a full disk of size bytes, written by qemu-img.
func packedImage(t testing.TB, size int64, options string) *countingFile {
	t.Helper()
	skipWithout(t, "qemu-img")
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	qemuImg(t, "convert", "-c", "-f", "raw", "-O", "qcow2", "-o", options, writeRaw(t, disk.NewPattern(size)), path)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return &countingFile{memory: b}
}

// TestCompressedClustersAreReadOnce reads a compressed disk in one request, and in requests of 4 KiB with one and
// four readers. Each byte of the file is read about once.
func TestCompressedClustersAreReadOnce(t *testing.T) {
	const size = 8 << 20
	want := disk.NewPattern(size)
	kinds := []string{"cluster_size=4k", "cluster_size=64k,compression_type=zstd", "cluster_size=2M"}
	if lane.Slow {
		kinds = append(kinds, "cluster_size=64k", "cluster_size=2M,compression_type=zstd")
	}
	for _, options := range kinds {
		image := packedImage(t, size, options).memory
		for _, c := range []struct{ readers, request, calls int64 }{{1, size, 24}, {1, 4 << 10, 2500}, {4, 4 << 10, 2500}} {
			file := &countingFile{memory: image}
			src, err := openChain(file, "disk.qcow2", SourceOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := readConcurrently(t, src, want, c.readers, c.request); err != nil {
				t.Fatal(err)
			}
			if n, most := file.bytes.Load(), file.Size()*13/10+256<<10; n > most || file.calls.Load() > c.calls {
				t.Errorf("%s, %d readers, %d bytes a request: %d bytes of %d were read in %d calls", options, c.readers, c.request, n, file.Size(), file.calls.Load())
			}
		}
	}
}

// readConcurrently compares src with want. Several readers read their parts of the disk sequentially.
func readConcurrently(t *testing.T, src, want disk.Source, readers, request int64) error {
	var g errgroup.Group
	part := src.Size() / readers
	for i := range readers {
		g.Go(func() error {
			got, content := make([]byte, request), make([]byte, request)
			for off := i * part; off < (i+1)*part; off += request {
				if err := src.ReadAt(t.Context(), got, off); err != nil {
					return err
				}
				if err := want.ReadAt(t.Context(), content, off); err != nil {
					return err
				}
				if string(got) != string(content) {
					return fmt.Errorf("at %d content differs", off)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// TestClusterCacheIsLimited reads a byte of more clusters than the cache holds.
func TestClusterCacheIsLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for options, size := range map[string]int64{"cluster_size=512": 128 << 10, "cluster_size=64k": 10 << 20, "cluster_size=2M": 12 << 20} {
		src, err := openChain(packedImage(t, size, options), "disk.qcow2", SourceOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1)
		for off := int64(1); off < src.Size(); off += src.clusterBytes() {
			if err := src.ReadAt(t.Context(), p, off); err != nil {
				t.Fatal(err)
			}
		}
		c := &src.shared.clusters
		var held int64
		for _, k := range c.kept {
			held += int64(len(k.data))
		}
		if held != c.bytes || held > keptBytes || len(c.kept) > keptClusters || len(c.kept) < 4 {
			t.Errorf("%s: %d cached clusters of %d bytes, counted as %d bytes", options, len(c.kept), held, c.bytes)
		}
	}
}

// Unused inflaters are released without being closed. They leave no goroutines.
func TestInflatersLeaveNoGoroutines(t *testing.T) {
	image := packedImage(t, 4<<20, "compression_type=zstd")
	before := runtime.NumGoroutine()
	src, err := openChain(image, "disk.qcow2", SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(t, src); err != nil {
		t.Fatal(err)
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines, %d before", after, before)
	}
}

// TestDamagedCompressedClusters flips bytes of compressed data. Every error is corrupt and has a remedy.
// Deflate has no checksum, so some flips cause no error; the manifest detects them.
func TestDamagedCompressedClusters(t *testing.T) {
	for _, options := range []string{"cluster_size=4k", "cluster_size=4k,compression_type=zstd"} {
		file := packedImage(t, 256<<10, options)
		refused := 0
		for at := 20 << 10; at < len(file.memory); at += 997 {
			file.memory[at] ^= 0x55
			if _, err := readImage(t, file.memory); err != nil {
				refused++
				if !fault.Is(err, fault.Corrupt) || !strings.Contains(fault.HintOf(err), "disk.qcow2") {
					t.Errorf("%s: flip at %d: %v", options, at, err)
				}
			}
			file.memory[at] ^= 0x55
		}
		if refused == 0 {
			t.Errorf("%s: no flip was detected", options)
		}
	}
}
