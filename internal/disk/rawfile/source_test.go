package rawfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
	"github.com/decamp/decamp/internal/fault"
)

func TestSourceConformance(t *testing.T) {
	open := map[string]func(t *testing.T, path string) *Source{
		"page cache": func(t *testing.T, path string) *Source { return openSource(t, path, false) },
		"direct":     func(t *testing.T, path string) *Source { return openSource(t, path, true) },
		"dropped": func(t *testing.T, path string) *Source {
			s := openSource(t, path, false)
			s.startDropping()
			return s
		},
	}
	for name, o := range open {
		t.Run(name, func(t *testing.T) {
			disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
				path := filepath.Join(t.TempDir(), "disk.raw")
				writeImage(t, path, want)
				s := o(t, path)
				t.Cleanup(func() { checkBuffersReturned(t, s.buffers) })
				return s
			})
		})
	}
}

func openSource(t *testing.T, path string, direct bool) *Source {
	t.Helper()
	s, err := OpenSource(path, SourceOptions{Direct: direct})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestReadsPassTheCache(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.raw")
	src := disk.NewPattern(4 << 20)
	writeImage(t, path, src)
	for name, prepare := range map[string]func(*Source){
		MediumDirect:  func(s *Source) { s.bypassCache() },
		MediumDropped: func(s *Source) { s.startDropping() },
	} {
		s := openSource(t, path, false)
		if s.memory {
			t.Skip("the temporary folder is in memory and has no medium")
		}
		prepare(s)
		p := make([]byte, 4<<20)
		for _, off := range []int64{0, 512, 5000, 1 << 20} {
			if err := s.ReadAt(t.Context(), p[:1<<20], off); err != nil {
				t.Fatal(err)
			}
		}
		if s.Medium() != name {
			t.Errorf("medium %q, want %q", s.Medium(), name)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestReadsFromTheCacheAreReported maps the file so that its pages stay in the cache. The source then reports that it
// read from the cache.
func TestReadsFromTheCacheAreReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.raw")
	writeImage(t, path, disk.NewPattern(1<<20))
	s := openSource(t, path, false)
	defer s.Close()
	mem, err := unix.Mmap(int(s.cached.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	s.memory = false
	s.startDropping()
	if err := s.ReadAt(t.Context(), make([]byte, 1<<20), 0); err != nil {
		t.Fatal(err)
	}
	if s.Medium() != MediumCache {
		t.Errorf("medium %q of mapped pages, want %q", s.Medium(), MediumCache)
	}
}

func TestUnreadableFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		kind fault.Kind
		hint string
	}{
		filepath.Join(dir, "none"): {fault.NotFound, "an image that exists"},
		pipe:                       {fault.Invalid, "a file or a block device"},
		"/dev/zero":                {fault.Invalid, "a file or a block device"},
	} {
		_, err := OpenSource(path, SourceOptions{})
		if !fault.Is(err, want.kind) || !strings.Contains(fault.HintOf(err), want.hint) {
			t.Errorf("%s: got %v (%s), want kind %v", path, err, fault.HintOf(err), want.kind)
		}
	}
}

func TestReadPastTheEndFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.raw")
	writeImage(t, path, disk.NewPattern(1<<20))
	for _, direct := range []bool{false, true} {
		s := openSource(t, path, direct)
		if err := os.Truncate(path, 1<<19); err != nil {
			t.Fatal(err)
		}
		err := s.ReadAt(t.Context(), make([]byte, 1<<20), 0)
		if err == nil || !strings.Contains(err.Error(), "ends at 524288") {
			t.Errorf("direct %v: %v", direct, err)
		}
		if err := errors.Join(s.Close(), os.Truncate(path, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
}
