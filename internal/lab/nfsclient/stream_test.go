package nfsclient

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/decamp/decamp/internal/lab/nfstest"
)

func TestStreamRepeatsItsBlock(t *testing.T) {
	s := startServer(t)
	d := mustMount(t, clientConfig(s))
	f := mustCreate(t, d, "x")
	block := randomBytes(ioSize)
	const blocks = 50
	for _, inFlight := range []int{1, 8} {
		if err := f.Stream(block, inFlight, blocks*ioSize).Write(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Read("x"); err != nil || !bytes.Equal(got, bytes.Repeat(block, blocks)) {
			t.Errorf("%d in flight: %d bytes arrived, %v, or the content differs", inFlight, len(got), err)
		}
	}
	if err := f.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	closeFile(t, f)
}

func TestStreamEndsWithTheFirstError(t *testing.T) {
	s := startServer(t)
	d := mustMount(t, clientConfig(s))
	f := mustCreate(t, d, "x")
	s.SetRoom(3 * ioSize)
	var status *StatusError
	if err := f.Stream(randomBytes(ioSize), 4, 50*ioSize).Write(t.Context()); !errors.As(err, &status) || status.Status != ErrNoSpc {
		t.Errorf("a full server: %v", err)
	}
	closeFile(t, f)
}

func TestStreamEndsWithItsContext(t *testing.T) {
	s := startServer(t)
	d := mustMount(t, clientConfig(s))
	f := mustCreate(t, d, "x")
	ctx, cancel := context.WithCancel(t.Context())
	s.Hook(func(op nfstest.Op) (v nfstest.Verdict) {
		if op.Proc == "WRITE" && op.Length == ioSize { // the lock's renewals are shorter
			cancel()
			v.NoReply = true
		}
		return v
	})
	if err := f.Stream(randomBytes(ioSize), 4, 50*ioSize).Write(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a server that does not answer: %v", err)
	}
	s.Hook(nil)
	closeFile(t, f)
}
