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

// counted counts what is read of a disk, in bytes.
type counted struct {
	ram
	read *int64
}

func (c counted) ReadAt(ctx context.Context, p []byte, off int64) error {
	*c.read += int64(len(p))
	return c.ram.ReadAt(ctx, p, off)
}

func streamOf(t *testing.T, src disk.Source) *stream {
	t.Helper()
	s, err := openStream(t.Context(), platform.Delivery{Open: func(context.Context, targets.Image) (disk.Source, error) { return src, nil }}, targets.Image{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Wherever data and holes begin and end, what is sent is what the disk holds, and holes are not read.
func TestStreamIsTheDisk(t *testing.T) {
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
		s := streamOf(t, counted{ram{content, nil, &open}, &read})
		got, err := io.ReadAll(s)
		if err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%d bytes of %d, %v", len(got), len(content), err)
		}
		if read > data*2*readSize {
			t.Errorf("%d bytes were read for %d pieces of data", read, data)
		}
		if err := errors.Join(s.Close(), s.Close()); err != nil || open != 0 {
			t.Errorf("closed twice: %v, %d are open", err, open)
		}
		if _, err := s.Read(got); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("read when closed: %v", err)
		}
	}
}

// An image that cannot be read is told from a way that broke.
func TestStreamTellsWhoFailed(t *testing.T) {
	bad, open := errors.New("bad sector"), 2
	s := streamOf(t, ram{bytes.Repeat([]byte{1}, 4096), bad, &open})
	if _, err := io.ReadAll(s); !errors.Is(err, bad) || !errors.Is(s.readError(), bad) {
		t.Errorf("%v, %v", err, s.readError())
	}
	s = streamOf(t, ram{bytes.Repeat([]byte{1}, 4096), context.Canceled, &open})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.setContext(ctx, func() {})
	if _, err := io.ReadAll(s); err == nil || s.readError() != nil {
		t.Errorf("%v, %v", err, s.readError())
	}
}

// CDI guesses the format of what it is sent by the first bytes, which are the guest's.
func TestDiskThatCDIWouldMistakeIsNotSent(t *testing.T) {
	for _, head := range []string{"QFI\xfb\x00\x00\x00\x03", "KDMV", "vhdxfile", "\x1f\x8b\x08\x00", "\xfd7zXZ\x00"} {
		open := 1
		src := ram{append([]byte(head), make([]byte, 4096-len(head))...), nil, &open}
		_, err := openStream(t.Context(), platform.Delivery{Open: func(context.Context, targets.Image) (disk.Source, error) { return src, nil }}, targets.Image{})
		if !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" || open != 0 {
			t.Errorf("%q: %v (%s), %d are open", head, err, fault.HintOf(err), open)
		}
	}
}
