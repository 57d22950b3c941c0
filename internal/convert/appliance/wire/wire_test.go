package wire

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

func TestSendAndReceive(t *testing.T) {
	var line bytes.Buffer
	sent := Reply{Size: 7, Names: []string{"a", "b c", "ü"}, NotExist: true, Fault: "full", Error: "no room"}
	if err := Send(&line, sent, []byte("content")); err != nil {
		t.Fatal(err)
	}
	if err := Send(&line, Request{Op: Read, Path: "etc/fstab", Limit: 3}, nil); err != nil {
		t.Fatal(err)
	}
	var got Reply
	data, err := Receive(&line, &got, 7)
	if err != nil || string(data) != "content" || !slices.Equal(got.Names, sent.Names) || got.Fault != "full" || !got.NotExist {
		t.Errorf("received %+v with data %q, error %v, want %+v", got, data, err, sent)
	}
	var request Request
	if data, err := Receive(&line, &request, 0); err != nil || len(data) != 0 || request != (Request{Op: Read, Path: "etc/fstab", Limit: 3}) {
		t.Errorf("received %+v with data %q, error %v", request, data, err)
	}
	if _, err := Receive(&line, &request, 0); !errors.Is(err, io.EOF) {
		t.Errorf("after the last message: got %v, want %v", err, io.EOF)
	}
}

// Invalid messages, and messages with more data than the limit, are refused before memory is allocated.
func TestReceiveRefuses(t *testing.T) {
	var whole bytes.Buffer
	if err := Send(&whole, Reply{}, []byte("content")); err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string][]byte{
		"more data than the limit": whole.Bytes(),
		"a head without an end":    append([]byte{0xff, 0xff, 0xff, 0x7f}, make([]byte, 100)...),
		"data without an end":      {2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '{', '}'},
		"invalid JSON":             {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '}', '{'},
	} {
		var r Reply
		if _, err := Receive(bytes.NewReader(line), &r, 6); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: got %v, want a corrupt error", name, err)
		}
	}
	for cut := 1; cut < whole.Len(); cut++ {
		var r Reply
		if _, err := Receive(bytes.NewReader(whole.Bytes()[:cut]), &r, 7); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("truncated at %d: got %v, want %v", cut, err, io.ErrUnexpectedEOF)
		}
	}
}

// FuzzReceive reads fuzzed messages. Receive does not panic and returns at most limit bytes of data.
func FuzzReceive(f *testing.F) {
	var line bytes.Buffer
	if err := Send(&line, Reply{Names: []string{"fstab"}, Log: []string{"XFS: Starting recovery"}}, []byte("content")); err != nil {
		f.Fatal(err)
	}
	f.Add(line.Bytes())
	f.Fuzz(func(t *testing.T, line []byte) {
		const limit = 100
		var r Reply
		if data, err := Receive(bytes.NewReader(line), &r, limit); len(data) > limit || err != nil && data != nil {
			t.Errorf("%d bytes of data, error %v", len(data), err)
		}
	})
}
