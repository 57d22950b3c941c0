package kubevirt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/test/lane"
)

// countingDisk counts the bytes that are read from a disk.
type countingDisk struct {
	memoryDisk
	read *int64
}

func (c countingDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	*c.read += int64(len(p))
	return c.memoryDisk.ReadAt(ctx, p, off)
}

// openTestStream opens a stream of src.
func openTestStream(t *testing.T, src disk.Source) *stream {
	t.Helper()
	s, err := openStream(t.Context(), platform.Delivery{Open: func(context.Context, targets.Image) (disk.Source, error) { return src, nil }}, targets.Image{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The stream has the content of the disk for any layout of data and holes, and does not read the holes.
func TestStreamContentEqualsDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	rounds := 40
	if lane.Slow {
		rounds = 200
	}
	for range rounds {
		content := make([]byte, 512*(1+rnd.IntN(9<<11)))
		data := int64(0)
		for range rnd.IntN(4) {
			content[rnd.IntN(len(content))] = 1
			data++
		}
		open, read := 1, int64(0)
		s := openTestStream(t, countingDisk{memoryDisk{content, nil, &open}, &read})
		got, err := io.ReadAll(s)
		if err != nil || !bytes.Equal(got, content) {
			t.Fatalf("got %d bytes of %d, or other content: %v", len(got), len(content), err)
		}
		if read > data*2*readSize {
			t.Errorf("%d bytes were read for %d pieces of data", read, data)
		}
		if err := errors.Join(s.Close(), s.Close()); err != nil || open != 0 {
			t.Errorf("second Close: %v, %d disks are open", err, open)
		}
		if _, err := s.Read(got); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("Read after Close: got %v, want fs.ErrClosed", err)
		}
	}
}

// readError reports an image that cannot be read, but not a canceled transfer.
func TestStreamReadError(t *testing.T) {
	bad, open := errors.New("bad sector"), 2
	s := openTestStream(t, memoryDisk{bytes.Repeat([]byte{1}, 4096), bad, &open})
	if _, err := io.ReadAll(s); !errors.Is(err, bad) || !errors.Is(s.readError(), bad) {
		t.Errorf("got %v and %v, want %v", err, s.readError(), bad)
	}
	s = openTestStream(t, memoryDisk{bytes.Repeat([]byte{1}, 4096), context.Canceled, &open})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.setContext(ctx, func() {})
	if _, err := io.ReadAll(s); err == nil || s.readError() != nil {
		t.Errorf("got %v and %v, want an error and nil", err, s.readError())
	}
}

// CDI detects the format of an upload by its first bytes, which the guest controls. openStream refuses a disk that
// CDI would misinterpret.
func TestDiskWithImageSignatureIsNotSent(t *testing.T) {
	for _, head := range []string{"QFI\xfb\x00\x00\x00\x03", "KDMV", "vhdxfile", "\x1f\x8b\x08\x00", "\xfd7zXZ\x00"} {
		open := 1
		src := memoryDisk{append([]byte(head), make([]byte, 4096-len(head))...), nil, &open}
		_, err := openStream(t.Context(), platform.Delivery{Open: func(context.Context, targets.Image) (disk.Source, error) { return src, nil }}, targets.Image{})
		if !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" || open != 0 {
			t.Errorf("%q: got %v (hint %q), want unsupported; %d disks are open", head, err, fault.HintOf(err), open)
		}
	}
}
