package nfchost

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// records is a reader that returns one record per Read.
type records [][]byte

func (r *records) Read(p []byte) (int, error) {
	if len(*r) == 0 {
		return 0, io.EOF
	}
	n := copy(p, (*r)[0])
	*r = (*r)[1:]
	return n, nil
}

func TestStreamReadsOneMessagePerRecord(t *testing.T) {
	s := &stream{r: &records{[]byte("aabb"), []byte("cc"), []byte("dd")}, records: true}
	for _, want := range []string{"aa", "bb", "cc"} {
		if got, err := s.startMessage(2); err != nil || string(got) != want {
			t.Fatalf("%q %v, want %q", got, err, want)
		}
	}
	// Each message except the first is read when the next record arrives. No record arrives
	// after the last message.
	if got, err := s.startMessage(2); !errors.Is(err, io.EOF) {
		t.Errorf("got %q, %v without another record, want EOF", got, err)
	}
	s = &stream{r: &records{[]byte("aabb")}}
	for _, want := range []string{"aa", "bb"} {
		if got, err := s.startMessage(2); err != nil || string(got) != want {
			t.Fatalf("without TLS: %q %v, want %q", got, err, want)
		}
	}
}

func FuzzReadRequest(f *testing.F) {
	path := "[ds1] vm1/vm1-000001.vmdk"
	open := appendHeader(nil, aioOpenFile, openFileSize, 3)
	open = binary.LittleEndian.AppendUint32(open, uint32(len(path)))
	open = append(append(open, make([]byte, openFileSize-4)...), path...)
	f.Add(open)
	f.Add(append(appendHeader(nil, aioIO, ioSize, 4), make([]byte, ioSize)...))
	f.Add(append(appendHeader(nil, aioCloseSession, 4, 5), make([]byte, 4)...))
	f.Add(appendHeader(nil, aioEntry, 1<<31-1, 6))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &stream{r: bytes.NewReader(data)}
		taken := 0
		for {
			q, err := s.readRequest()
			if err != nil {
				break
			}
			if !sizeAllowed(q.kind, len(q.payload)) {
				t.Fatalf("request %d with %d bytes", q.kind, len(q.payload))
			}
			taken += headerSize + len(q.payload) + len(q.trailer)
		}
		if taken > len(data) {
			t.Errorf("%d bytes read of %d", taken, len(data))
		}
	})
}

func FuzzSkipZ(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 512))
	f.Add(append(make([]byte, 137), "xyz"...))
	f.Add(append([]byte("ab\x00\x00\x00\x00\x00\x00\x00\x00\x00cd"), 0, 0, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := appendSkipZ(nil, data)
		got, last := make([]byte, len(data)), -1
		if len(p) < 8 || int(binary.LittleEndian.Uint32(p)) != len(data) || binary.LittleEndian.Uint32(p[4:]) != 0 {
			t.Fatalf("head %x", p[:min(8, len(p))])
		}
		for p = p[8:]; len(p) > 0; {
			start, n := int(binary.LittleEndian.Uint32(p)), int(binary.LittleEndian.Uint32(p[4:]))
			if start <= last || n == 0 || start+n > len(data) || data[start] == 0 {
				t.Fatalf("run %d+%d after %d", start, n, last)
			}
			last = start + copy(got[start:], p[8:8+n])
			p = p[8+n:]
		}
		if !bytes.Equal(got, data) {
			t.Errorf("got %x from %x", got, data)
		}
	})
}

// The vector is from the protocol's description.
func TestSkipZVector(t *testing.T) {
	data := make([]byte, 512)
	copy(data[137:], "xyz")
	data[500] = 'Q'
	want := []byte("\x00\x02\x00\x00\x00\x00\x00\x00\x89\x00\x00\x00\x03\x00\x00\x00xyz\xf4\x01\x00\x00\x01\x00\x00\x00Q")
	if got := appendSkipZ(nil, data); !bytes.Equal(got, want) {
		t.Errorf("% x\nwant % x", got, want)
	}
}
