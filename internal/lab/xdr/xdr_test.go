package xdr

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestRoundTrip(t *testing.T) {
	var e Encoder
	e.Uint32(7)
	e.Uint64(1 << 40)
	e.Bool(true)
	e.Fixed([]byte{1, 2, 3, 4, 5})
	e.String("a name")
	d := NewDecoder(e.B)
	if v := d.Uint32(); v != 7 {
		t.Error(v)
	}
	if v := d.Uint64(); v != 1<<40 {
		t.Error(v)
	}
	if !d.Bool() || !bytes.Equal(d.Fixed(5), []byte{1, 2, 3, 4, 5}) || d.String(6) != "a name" {
		t.Error("the Bool, Fixed or String differs")
	}
	if err := d.End(); err != nil {
		t.Error(err)
	}
}

func TestDecoderRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		msg    []byte
		decode func(*Decoder)
	}{
		"a boolean of 2":       {[]byte{0, 0, 0, 2}, func(d *Decoder) { d.Bool() }},
		"padding":              {[]byte{9, 0, 0, 1}, func(d *Decoder) { d.Fixed(1) }},
		"too short":            {[]byte{0, 0, 0}, func(d *Decoder) { d.Uint32() }},
		"more than its limit":  {[]byte{0, 0, 0, 9, 1, 2}, func(d *Decoder) { d.Opaque(8) }},
		"longer than the rest": {[]byte{0, 0, 0, 9, 1, 2}, func(d *Decoder) { d.Opaque(100) }},
		"bytes after the end":  {[]byte{0, 0, 0, 0, 0}, func(d *Decoder) { d.Uint32() }},
	} {
		d := NewDecoder(tc.msg)
		tc.decode(d)
		if d.End() == nil {
			t.Errorf("%s: no error", name)
		}
		if v := d.Uint64(); v != 0 {
			t.Errorf("%s: read %d after the error", name, v)
		}
	}
}

func TestCallAndReplyHeads(t *testing.T) {
	want := Call{XID: 5, Prog: 100003, Vers: 3, Proc: 7, Flavor: AuthSys, Machine: "esx1", UID: 0, GID: 0}
	var e Encoder
	want.Append(&e)
	d := NewDecoder(e.B)
	if got := ReadCall(d); got != want || d.End() != nil {
		t.Errorf("%+v, %v", got, d.Err())
	}
	for s := Success; s <= SystemErr; s++ {
		var e Encoder
		AppendReply(&e, 5, s)
		xid, err := ReadReply(NewDecoder(e.B))
		var rpc *RPCError
		if xid != 5 || (err == nil) != (s == Success) || (err != nil && !errors.As(err, &rpc)) {
			t.Errorf("%v: xid %d, %v", s, xid, err)
		}
	}
}

func TestDeniedReply(t *testing.T) {
	var e Encoder
	for _, v := range []uint32{5, 1, 1, 1, 7} { // xid, REPLY, MSG_DENIED, AUTH_ERROR, AUTH_FAILED
		e.Uint32(v)
	}
	if xid, err := ReadReply(NewDecoder(e.B)); xid != 5 || !errors.Is(err, ErrDenied) {
		t.Errorf("xid %d, %v", xid, err)
	}
}

func TestRecordInFragments(t *testing.T) {
	stream := []byte{0, 0, 0, 2, 'a', 'b', 0x80, 0, 0, 1, 'c', 0x80, 0, 0, 0}
	r := iotest.OneByteReader(bytes.NewReader(stream))
	for _, want := range []string{"abc", ""} {
		if got, err := ReadRecord(r, 3); err != nil || string(got) != want {
			t.Errorf("%q, %v: want %q", got, err, want)
		}
	}
	if _, err := ReadRecord(r, 3); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestRecordRefusals(t *testing.T) {
	for name, stream := range map[string][]byte{
		"too long":       {0x80, 0, 0, 4, 1, 2, 3, 4},
		"grows too long": {0, 0, 0, 2, 1, 2, 0x80, 0, 0, 2, 1, 2},
		"empty fragment": {0, 0, 0, 0},
		"cut":            {0x80, 0, 0, 3, 1},
		"cut in between": {0, 0, 0, 1, 1},
	} {
		if _, err := ReadRecord(bytes.NewReader(stream), 3); err == nil || err == io.EOF {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzMessage(f *testing.F) {
	var call, reply Encoder
	Call{XID: 1, Prog: 100003, Vers: 3, Flavor: AuthSys, Machine: "esx"}.Append(&call)
	AppendReply(&reply, 1, Success)
	f.Add(call.B)
	f.Add(reply.B)
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, msg []byte) {
		d := NewDecoder(msg)
		if c := ReadCall(d); d.Err() == nil && c.Flavor == AuthSys && len(c.Machine) > maxMachine {
			t.Errorf("machine name of %d bytes", len(c.Machine))
		}
		d = NewDecoder(msg)
		if _, err := ReadReply(d); err == nil && d.Err() != nil {
			t.Error("an error was lost")
		}
		stream := append(append([]byte{}, msg...), msg...)
		if rec, err := ReadRecord(bytes.NewReader(stream), len(msg)); err == nil && len(rec) > len(msg) {
			t.Errorf("record of %d bytes above its limit", len(rec))
		}
	})
}
