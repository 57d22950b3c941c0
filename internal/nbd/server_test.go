package nbd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

func TestHandshake(t *testing.T) {
	one, two := &ram{data: scattered(1 << 20)}, &writable{ram: ram{data: make([]byte, 3<<20)}}
	path := serveOn(t, &Server{Exports: []Export{{Name: "one", Description: "the first", Disk: one}, {Name: "two", Disk: two}, {Name: "kept", Disk: two, ReadOnly: true}}})
	c := dial(t, path)
	c.send(be32(fixedNewstyle | noZeroes))
	expect := func(what string, got []optionReply, want ...optionReply) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: %v", what, got)
		}
		for i := range want {
			if got[i].kind != want[i].kind || want[i].data != nil && !bytes.Equal(got[i].data, want[i].data) {
				t.Errorf("%s: reply %d is %#x %q, want %#x %q", what, i, got[i].kind, got[i].data, want[i].kind, want[i].data)
			}
		}
	}
	ack := optionReply{kind: repAck, data: []byte{}}
	server := func(name, description string) optionReply {
		return optionReply{repServer, append(text(name), description...)}
	}
	info := func(size uint64, flags uint16) optionReply {
		return optionReply{repInfo, bytes.Join([][]byte{be16(infoExport), be64(size), be16(flags)}, nil)}
	}
	expect("LIST", c.ask(optList), server("one", "the first"), server("two", ""), server("kept", ""), ack)
	expect("LIST with data", c.ask(optList, []byte("x")), optionReply{kind: repInvalid})
	expect("an unknown option", c.ask(99, []byte("x")), optionReply{kind: repUnsupported})
	expect("STARTTLS without TLS", c.ask(optStartTLS), optionReply{kind: repUnsupported})
	expect("contexts before structured replies", c.ask(optSetContext, text(""), be32(0)), optionReply{kind: repInvalid})
	expect("INFO", c.ask(optInfo, text("two"), be16(0)), info(3<<20, hasFlags|sendFlush|multiConn), ack)
	expect("STRUCTURED_REPLY", c.ask(optStructured), ack)
	expect("INFO, structured", c.ask(optInfo, text(""), be16(3), be16(infoName), be16(infoDescription), be16(infoBlockSize)),
		info(1<<20, hasFlags|readOnly|sendDF|multiConn),
		optionReply{repInfo, append(be16(infoName), "one"...)}, optionReply{repInfo, append(be16(infoDescription), "the first"...)},
		optionReply{repInfo, bytes.Join([][]byte{be16(infoBlockSize), be32(1), be32(4096), be32(16 << 20)}, nil)}, ack)
	expect("INFO of an unknown export", c.ask(optInfo, text("three"), be16(0)), optionReply{kind: repUnknown})
	expect("INFO, cut short", c.ask(optInfo, be32(100), []byte("two")), optionReply{kind: repInvalid})
	expect("INFO, too long", c.ask(optInfo, text("two"), be16(0), be16(0)), optionReply{kind: repInvalid})
	context := optionReply{repContext, append(be32(contextID), contextAllocation...)}
	expect("LIST_META_CONTEXT of all", c.ask(optListContext, text("two"), be32(0)), context, ack)
	expect("LIST_META_CONTEXT of base:", c.ask(optListContext, text("two"), be32(1), text("base:")), context, ack)
	expect("SET_META_CONTEXT of none", c.ask(optSetContext, text("two"), be32(1), text("x-other:y")), ack)
	expect("SET_META_CONTEXT of an unknown export", c.ask(optSetContext, text("three"), be32(1), text(contextAllocation)), optionReply{kind: repUnknown})
	expect("SET_META_CONTEXT, cut short", c.ask(optSetContext, text("two"), be32(1<<31), text(contextAllocation)), optionReply{kind: repInvalid})
	expect("SET_META_CONTEXT", c.ask(optSetContext, text("two"), be32(2), text("x-other:y"), text(contextAllocation)), context, ack)
	expect("GO to another export", c.ask(optGo, text("kept"), be16(0)), info(3<<20, hasFlags|readOnly|sendDF|multiConn), ack)
	c.send(call(cmdBlockStatus, 0, 5, 0, 512)) // the context is not that of this export
	if code, _, _ := errorOf(c.readChunk()); code != errInval {
		t.Errorf("block status without a context: error %d", code)
	}
}

// The old end of the handshake, with and without padding.
func TestExportName(t *testing.T) {
	path := serveOn(t, &Server{Exports: []Export{{Name: "one", Disk: &ram{data: make([]byte, 512)}}}})
	for flags, length := range map[uint32]int{fixedNewstyle | noZeroes: 10, fixedNewstyle: 134, 0: 134} {
		c := dial(t, path)
		c.send(be32(flags), option(optExportName, []byte("one")), call(cmdRead, 0, 7, 0, 512))
		if end := c.read(length); binary.BigEndian.Uint64(end) != 512 {
			t.Errorf("flags %d: % x", flags, end)
		}
		if reply := c.read(16 + 512); !bytes.Equal(reply[:16], bytes.Join([][]byte{be32(replyMagic), be32(0), be64(7)}, nil)) {
			t.Errorf("reply % x", reply[:16])
		}
	}
}

// Each violation ends the connection, and the log has the reason.
func TestViolations(t *testing.T) {
	hello := be32(fixedNewstyle | noZeroes)
	goOn := option(optExportName, []byte("one"))
	for reason, sent := range map[string][]byte{
		"unknown flags: 0x8":              be32(8),
		"magic number 0x4e42444d41474943": append(hello, "NBDMAGIC00000000"...),
		"and 4294967295 bytes":            bytes.Join([][]byte{hello, be64(optionMagic), be32(optList), be32(1<<32 - 1)}, nil),
		"more than 256 NBD options":       append(hello, bytes.Repeat(option(optList, []byte("x")), 256)...),
		"does not exist":                  append(hello, option(optExportName, []byte("two"))...),
		"request with magic number 0x0":   bytes.Join([][]byte{hello, goOn, make([]byte, 28)}, nil),
		"an NBD write of 16777217 bytes":  bytes.Join([][]byte{hello, goOn, call(cmdWrite, 0, 1, 0, 16<<20+1)}, nil),
		"NBD client lost":                 bytes.Join([][]byte{hello, goOn, call(cmdWrite, 0, 1, 0, 512), make([]byte, 100)}, nil),
	} {
		s := &Server{Exports: []Export{{Name: "one", Disk: &writable{ram: ram{data: make([]byte, 4096)}}}}}
		log := newLog(s)
		ours, theirs := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- s.ServeConn(t.Context(), theirs) }()
		go func() { _, _ = io.Copy(io.Discard, ours) }()
		_, _ = ours.Write(sent) // the server may end before it has all
		if reason == "NBD client lost" {
			_ = ours.Close()
		}
		if err := <-ended; (err == nil) != (reason == "NBD client lost") {
			t.Errorf("%s: %v", reason, err)
		}
		if !strings.Contains(log.String(), reason) {
			t.Errorf("the log does not have %q: %s", reason, log)
		}
		_ = ours.Close()
	}
}

// A client whose handshake arrives in single bytes is served.
func TestHandshakeInSingleBytes(t *testing.T) {
	path := serveOn(t, &Server{Exports: []Export{{Disk: &ram{data: []byte(strings.Repeat("x", 512))}}}})
	c := dial(t, path)
	for _, b := range bytes.Join([][]byte{be32(fixedNewstyle), option(optStructured), option(optGo, text(""), be16(0)), call(cmdRead, 0, 1, 500, 12)}, nil) {
		c.send([]byte{b})
	}
	c.read(20 + 20 + 12 + 20)
	if got := c.readChunk(); got.kind != chunkData || string(got.data[8:]) != "xxxxxxxxxxxx" {
		t.Errorf("%+v", got)
	}
}

// A handshake ends after its time, a connection without requests does not.
func TestHandshakeTimeout(t *testing.T) {
	t.Parallel()
	s := &Server{Exports: []Export{{Disk: &ram{data: make([]byte, 512)}}}, Limits: Limits{Handshake: 3 * time.Second, Stall: 2 * time.Second}}
	idle := dial(t, serveOn(t, s))
	idle.enter("")
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() { _, _ = io.Copy(io.Discard, ours) }()
	if err := s.ServeConn(t.Context(), theirs); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "handshake") {
		t.Errorf("%v", err)
	}
	idle.send(call(cmdRead, 0, 1, 0, 512))
	if k := idle.readChunk(); k.kind != chunkData {
		t.Errorf("chunk %d", k.kind)
	}
}

// The client of this package reads and writes disks of the server.
func TestClientOfThisPackage(t *testing.T) {
	d := &writable{ram: ram{data: scattered(3 << 20)}}
	s := &Server{Exports: []Export{{Disk: d}}}
	ours, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.ServeConn(t.Context(), theirs) }()
	c, err := New(ours)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.WriteAt(t.Context(), []byte("hello"), 1000), c.Flush(t.Context())); err != nil {
		t.Error(err)
	}
	got := make([]byte, c.Size())
	if err := c.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, d.content()) || string(got[1000:1005]) != "hello" {
		t.Errorf("other bytes: %v", err)
	}
	if err := errors.Join(c.Close(), <-ended); err != nil {
		t.Error(err)
	}
}

func TestReads(t *testing.T) {
	data := scattered(8 << 20)
	for name, d := range map[string]Reader{"reader": &ram{data: data}, "viewer": &viewed{ram: ram{data: data}}} {
		c := dial(t, serveOn(t, &Server{Exports: []Export{{Disk: d}}}))
		c.enter("")
		check := func(flags uint16, off, length int) (chunks, holes int) {
			t.Helper()
			c.send(call(cmdRead, flags, 9, uint64(off), uint32(length)))
			got := bytes.Repeat([]byte{0xff}, length)
			covered := 0
			for {
				k := c.readChunk()
				if k.cookie != 9 {
					t.Fatalf("cookie %d", k.cookie)
				}
				chunks++
				at := int(binary.BigEndian.Uint64(k.data)) - off
				switch k.kind {
				case chunkData:
					covered += copy(got[at:], k.data[8:])
				case chunkHole:
					holes++
					n := int(binary.BigEndian.Uint32(k.data[8:]))
					clear(got[at:][:n])
					covered += n
				default:
					t.Fatalf("%s: chunk %+v", name, k)
				}
				if k.flags == chunkDone {
					break
				}
			}
			if covered != length || !bytes.Equal(got, data[off:][:length]) {
				t.Errorf("%s: other bytes at %d", name, off)
			}
			return chunks, holes
		}
		if chunks, holes := check(0, 0, 1<<20); chunks != 1 || holes != 0 {
			t.Errorf("%s: %d chunks, %d holes before any block status", name, chunks, holes)
		}
		if chunks, holes := check(0, 100<<10, 3<<20); chunks != 4 || holes != 0 {
			t.Errorf("%s: %d chunks, %d holes before any block status", name, chunks, holes)
		}
		c.send(call(cmdBlockStatus, flagReqOne, 8, 0, 8<<20))
		c.readChunk()
		if _, holes := check(0, 123, 3<<20+5); holes == 0 {
			t.Errorf("%s: no holes", name)
		}
		check(0, 0, 8<<20)
		if chunks, holes := check(flagDF, 0, 8<<20); chunks != 1 || holes != 0 {
			t.Errorf("%s: %d chunks, %d holes without fragments", name, chunks, holes)
		}
		check(0, 8<<20-1, 1)
		c.send(call(cmdRead, 0, 9, 8<<20, 0))
		if k := c.readChunk(); k.kind != chunkNone {
			t.Errorf("%s: an empty read: %+v", name, k)
		}
		c.send(call(cmdDisconnect, 0, 0, 0, 0))
		if !c.ended() {
			t.Error("the server goes on")
		}
		if v, ok := d.(*viewed); ok && (v.lent.Load() != 0 || v.most.Load() == 0) {
			t.Errorf("%d views are not released", v.lent.Load())
		}
	}
}

func TestBlockStatus(t *testing.T) {
	const size = 80 << 20
	data := make([]byte, size)
	for _, at := range []int{0, 1 << 20, 60 << 20} {
		data[at] = 1
	}
	c := dial(t, serveOn(t, &Server{Exports: []Export{{Disk: &ram{data: data}}}}))
	c.enter("")
	status := func(flags uint16, off uint64, length uint32) (out []uint32) {
		t.Helper()
		c.send(call(cmdBlockStatus, flags, 3, off, length))
		k := c.readChunk()
		if k.kind != chunkStatus || k.flags != chunkDone || binary.BigEndian.Uint32(k.data) != contextID {
			t.Fatalf("%+v", k)
		}
		for p := k.data[4:]; len(p) > 0; p = p[4:] {
			out = append(out, binary.BigEndian.Uint32(p))
		}
		return out
	}
	for _, c := range []struct {
		flags  uint16
		off    uint64
		length uint32
		want   []uint32
	}{
		{0, 0, size, []uint32{512, 0, 1<<20 - 512, 3, 512, 0, 59<<20 - 512, 3, 512, 0, 20<<20 - 512, 3}},
		{flagReqOne, 0, size, []uint32{512, 0}},
		{flagReqOne, 512, size - 512, []uint32{1<<20 - 512, 3}},
		{flagReqOne, 1<<20 + 512, size - 1<<20 - 512, []uint32{59<<20 - 512, 3}},
		{0, 0, 300, []uint32{300, 0}},
		{0, size - 1, 1, []uint32{1, 3}},
	} {
		got := status(c.flags, c.off, c.length)
		if c.flags == flagReqOne && len(got) == 2 && got[1] == c.want[1] && got[0] <= c.want[0] && got[0] >= min(c.want[0], 1<<20) {
			continue // a server may describe less
		}
		if len(got) != len(c.want) || !bytes.Equal(numbers(got), numbers(c.want)) {
			t.Errorf("%d bytes at %d: %v, want %v", c.length, c.off, got, c.want)
		}
	}
}

func numbers(list []uint32) (out []byte) {
	for _, n := range list {
		out = append(out, be32(n)...)
	}
	return out
}

// noMap is a disk whose map fails.
type noMap struct{ ram }

func (*noMap) Extents(context.Context, disk.Range) ([]disk.Extent, error) {
	return nil, errors.New("the host has no map")
}

// Without a map, everything is data, and the log has the reason.
func TestBlockStatusWithoutMap(t *testing.T) {
	s := &Server{Exports: []Export{{Disk: &noMap{ram{data: make([]byte, 1<<20)}}}}}
	log := newLog(s)
	c := dial(t, serveOn(t, s))
	c.enter("")
	c.send(call(cmdBlockStatus, 0, 3, 0, 1<<20))
	if k := c.readChunk(); k.kind != chunkStatus || !bytes.Equal(k.data[4:], numbers([]uint32{1 << 20, 0})) {
		t.Errorf("%+v", k)
	}
	if !strings.Contains(log.String(), "the host has no map") {
		t.Errorf("the log: %s", log)
	}
}

// Requests that cannot be executed have an error with a message, and the connection stays open.
func TestErrors(t *testing.T) {
	d := &ram{data: scattered(4 << 20), bad: disk.Range{Off: 3<<20 + 512, Len: 512}, err: errBad}
	s := &Server{Exports: []Export{{Disk: d}}}
	log := newLog(s)
	s.now = func() time.Time { return time.Unix(1000, 0) }
	c := dial(t, serveOn(t, s))
	c.enter("")
	for _, q := range []struct {
		sent   []byte
		code   uint32
		reason string
	}{
		{call(cmdRead, 0, 1, 4<<20, 1), errInval, "outside of the disk"},
		{call(cmdRead, 0, 1, 1<<63, 512), errInval, "outside of the disk"},
		{call(cmdRead, 0, 1, 0, 32<<20+1), errInval, "at most 33554432 bytes"},
		{call(cmdRead, flagDF, 1, 0, 16<<20+1), errInval, "at most 16777216 bytes"},
		{call(cmdRead, 1, 1, 0, 512), errInval, "flags 0x1"},
		{call(cmdBlockStatus, 0, 1, 4<<20, 512), errInval, "outside of the disk"},
		{call(cmdBlockStatus, flagDF, 1, 0, 512), errInval, "flags 0x4"},
		{call(cmdBlockStatus, 0, 1, 0, 0), errInval, "the range is empty"},
		{append(call(cmdWrite, 0, 1, 0, 512), make([]byte, 512)...), errPerm, "read-only"},
		{call(cmdFlush, 0, 1, 0, 0), errPerm, "read-only"},
		{call(cmdZeroes, 0, 1, 0, 512), errInval, "not supported"},
		{call(77, 0, 1, 0, 512), errInval, "not supported"},
		{call(cmdRead, flagDF, 1, 3<<20, 1024), errIO, "sector 7 is bad"},
	} {
		c.send(q.sent)
		k := c.readChunk()
		code, reason, _ := errorOf(k)
		if code != q.code || !strings.Contains(reason, q.reason) || k.flags != chunkDone {
			t.Errorf("% x: error %d, %s; want %d, %s", q.sent[:28], code, reason, q.code, q.reason)
		}
	}
	// Pieces before the error arrive, and the offset of the error is that of its piece.
	c.send(call(cmdRead, 0, 1, 1<<20, 3<<20))
	for range 2 {
		if k := c.readChunk(); k.kind != chunkData || k.flags != 0 {
			t.Errorf("chunk %d %d", k.kind, k.flags)
		}
	}
	k := c.readChunk()
	if code, reason, off := errorOf(k); k.kind != chunkErrorOffset || code != errIO || off != 3<<20 || reason != errBad.Error() {
		t.Errorf("error %d at %d: %s", code, off, reason)
	}
	if n := strings.Count(log.String(), errBad.Error()); n != 1 {
		t.Errorf("%d lines in one second: %s", n, log)
	}
}

// Writes reach the disk, and its errors the client.
func TestWrites(t *testing.T) {
	d := &writable{ram: ram{data: make([]byte, 1<<20)}}
	c := dial(t, serveOn(t, &Server{Exports: []Export{{Disk: d}}}))
	if flags := c.enter(""); flags&readOnly != 0 || flags&sendFlush == 0 {
		t.Errorf("flags %#x", flags)
	}
	write := func(off uint64, text string) []byte {
		return append(call(cmdWrite, 0, 1, off, uint32(len(text))), text...)
	}
	c.send(write(1000, "hello"), call(cmdFlush, 0, 2, 0, 0))
	for range 2 {
		if k := c.readChunk(); k.kind != chunkNone || k.flags != chunkDone {
			t.Errorf("%+v", k)
		}
	}
	if got := d.content()[1000:1005]; string(got) != "hello" || d.synced.Load() != 1 {
		t.Errorf("%q, %d", got, d.synced.Load())
	}
	c.send(write(1<<20-1, "xx"))
	if code, _, _ := errorOf(c.readChunk()); code != errNoSpc {
		t.Errorf("error %d", code)
	}
	for err, want := range map[error]uint32{fault.New(fault.Full, "full"): errNoSpc, fault.New(fault.Unsupported, "too much"): errNoSpc, errBad: errIO} {
		d.mu.Lock()
		d.err = err
		d.mu.Unlock()
		c.send(write(0, "x"))
		if code, reason, _ := errorOf(c.readChunk()); code != want || reason != err.Error() {
			t.Errorf("error %d %s", code, reason)
		}
	}
}

// Requests do not wait for each other.
func TestParallelRequests(t *testing.T) {
	d := &ram{data: scattered(1 << 20), gate: make(chan struct{})}
	c := dial(t, serveOn(t, &Server{Exports: []Export{{Disk: d}}, Limits: Limits{Requests: 4}}))
	c.enter("")
	for cookie := range uint64(3) {
		c.send(call(cmdRead, 0, cookie, 0, 512))
	}
	c.send(call(cmdBlockStatus, flagReqOne, 99, 0, 512))
	if k := c.readChunk(); k.cookie != 99 {
		t.Errorf("reply to request %d", k.cookie)
	}
	// The next two fill the slots, so that this one is not read until another ends.
	c.send(call(cmdRead, 0, 3, 0, 512), call(cmdBlockStatus, flagReqOne, 100, 0, 512))
	d.gate <- struct{}{}
	if k := c.readChunk(); k.cookie == 100 || k.kind != chunkData {
		t.Errorf("reply to request %d", k.cookie)
	}
	close(d.gate)
	seen := map[uint64]bool{}
	for range 4 {
		seen[c.readChunk().cookie] = true
	}
	if !seen[100] || len(seen) != 4 {
		t.Errorf("replies to %v", seen)
	}
}

// A client that does not read its replies loses its connection, and releases what it has.
func TestClientThatDoesNotRead(t *testing.T) {
	d := &viewed{ram: ram{data: scattered(64 << 20)}}
	s := &Server{Exports: []Export{{Disk: d}}, Limits: Limits{Stall: 100 * time.Millisecond}}
	log := newLog(s)
	ours, theirs := net.Pipe()
	defer ours.Close()
	ended := make(chan error, 1)
	go func() { ended <- s.ServeConn(t.Context(), theirs) }()
	c := &rawClient{ours, t}
	c.read(18)
	c.enter("")
	for cookie := range uint64(10_000) { // until the server does not read any more
		if _, err := ours.Write(call(cmdRead, 0, cookie, 0, 1<<20)); err != nil {
			break
		}
	}
	if err := <-ended; !fault.Is(err, fault.Transient) || !strings.Contains(log.String(), "does not read its replies") {
		t.Errorf("%v: %s", err, log)
	}
	if d.lent.Load() != 0 {
		t.Errorf("%d views are not released", d.lent.Load())
	}
	if most := d.most.Load(); most > maxUnsent>>20+1 {
		t.Errorf("the client held %d MiB", most)
	}
}

// A client that announces a write and sends a part of it loses its connection.
func TestWriteThatDoesNotArrive(t *testing.T) {
	d := &writable{ram: ram{data: make([]byte, 1<<20)}}
	for _, readOnly := range []bool{false, true} {
		s := &Server{Exports: []Export{{Disk: d, ReadOnly: readOnly}}, Limits: Limits{Stall: 100 * time.Millisecond}}
		ours, theirs := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- s.ServeConn(t.Context(), theirs) }()
		c := &rawClient{ours, t}
		c.read(18)
		c.enter("")
		c.send(call(cmdWrite, 0, 1, 0, 1<<20), make([]byte, 1000))
		if err := <-ended; !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "does not arrive") {
			t.Errorf("%v", err)
		}
		if s.memory.used != s.memory.held() {
			t.Errorf("%d bytes are lost", s.memory.used-s.memory.held())
		}
		_ = ours.Close()
	}
}

// A client that ends with requests in work does not hold anything.
func TestClientThatLeaves(t *testing.T) {
	d := &viewed{ram: ram{data: scattered(1 << 20), gate: make(chan struct{})}}
	s := &Server{Exports: []Export{{Disk: d}}}
	ours, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.ServeConn(t.Context(), theirs) }()
	c := &rawClient{ours, t}
	c.read(18)
	c.enter("")
	for cookie := range uint64(10) {
		c.send(call(cmdRead, 0, cookie, 0, 512))
	}
	d.gate <- struct{}{}
	c.readChunk()
	c.send(call(cmdRead, 0, 11, 0, 512)[:13])
	_ = ours.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if d.lent.Load() != 0 || d.most.Load() == 0 {
		t.Errorf("%d views are not released", d.lent.Load())
	}
}

// The end of the context ends everything: a handshake, an idle client, a read, and Serve.
func TestCancel(t *testing.T) {
	d := &viewed{ram: ram{data: scattered(1 << 20), gate: make(chan struct{})}}
	s := &Server{Exports: []Export{{Disk: d}}}
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	path := l.Addr().String()
	greeted, idle, busy := dial(t, path), dial(t, path), dial(t, path)
	idle.enter("")
	busy.enter("")
	busy.send(call(cmdRead, 0, 1, 0, 512), call(cmdBlockStatus, 0, 2, 0, 512))
	busy.readChunk() // the read is in work
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, c := range []*rawClient{greeted, idle, busy} {
		if !c.ended() {
			t.Error("a connection is open")
		}
	}
	if d.lent.Load() != 0 {
		t.Errorf("%d views are not released", d.lent.Load())
	}
}

// A client more than the limit is refused, and admitted when another has left.
func TestConnectionLimit(t *testing.T) {
	s := &Server{Exports: []Export{{Disk: &ram{data: make([]byte, 512)}}}, Limits: Limits{Connections: 2}}
	log := newLog(s)
	path := serveOn(t, s)
	first, second := dial(t, path), dial(t, path)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if third := (&rawClient{conn, t}); !third.ended() {
		t.Error("a third client is served")
	}
	if !strings.Contains(log.String(), "2 clients are connected") {
		t.Errorf("the log: %s", log)
	}
	first.send(be32(fixedNewstyle))
	first.ask(optAbort)
	if !first.ended() {
		t.Error("the server goes on after ABORT")
	}
	second.enter("")
	for {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := conn.Read(make([]byte, 1))
		_ = conn.Close()
		if n == 1 {
			return // the place of the first is free
		}
	}
}

func TestInvalidExports(t *testing.T) {
	d := &ram{data: make([]byte, 512)}
	for want, exports := range map[string][]Export{
		"no export":     nil,
		"have the name": {{Name: "a", Disk: d}, {Name: "a", Disk: d}},
		"zero byte":     {{Name: "a\x00", Disk: d}},
		"longer than":   {{Name: strings.Repeat("a", 4097), Disk: d}},
		"is not UTF-8":  {{Description: "\xff", Disk: d}},
	} {
		ours, theirs := net.Pipe()
		err := (&Server{Exports: exports}).ServeConn(t.Context(), theirs)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		_ = ours.Close()
	}
}

// strict is a disk that is used only as it may be.
type strict struct {
	t    *testing.T
	size int64
}

func (s strict) Size() int64 { return s.size }

func (s strict) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > s.size || int64(len(p)) > s.size-off || len(p) > maxServed {
		s.t.Errorf("%d bytes at %d", len(p), off)
	}
	return nil
}

func (s strict) WriteAt(ctx context.Context, p []byte, off int64) error { return s.ReadAt(ctx, p, off) }

func (s strict) Sync(context.Context) error { return nil }

func (s strict) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	if r.Off < 0 || r.Len <= 0 || r.Off > s.size || r.Len > s.size-r.Off {
		s.t.Errorf("extents of %v", r)
	}
	half := r.Len / 2
	return []disk.Extent{{Range: disk.Range{Off: r.Off, Len: r.Len - half}, Kind: disk.Zero}, {Range: disk.Range{Off: r.End() - half, Len: half}}}, nil
}

// line is a client that has sent everything already.
type line struct {
	io.Reader
	net.Conn
	sent int
}

func (l *line) Read(p []byte) (int, error) { return l.Reader.Read(p) }

func (l *line) Write(p []byte) (int, error) { l.sent += len(p); return len(p), nil }

func (*line) Close() error                     { return nil }
func (*line) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (*line) SetDeadline(time.Time) error      { return nil }
func (*line) SetReadDeadline(time.Time) error  { return nil }
func (*line) SetWriteDeadline(time.Time) error { return nil }

// FuzzServe serves a client that has sent those bytes: no panic, nothing outside of the disk, and an end.
func FuzzServe(f *testing.F) {
	hello := be32(fixedNewstyle | noZeroes)
	modern := bytes.Join([][]byte{
		hello, option(optList), option(optStructured), option(optListContext, text(""), be32(0)), option(optSetContext, text(""), be32(1), text(contextAllocation)),
		option(optInfo, text(""), be16(1), be16(infoBlockSize)), option(optGo, text(""), be16(0)),
	}, nil)
	f.Add(append(hello, option(optGo, text(""), be16(0))...))
	f.Add(bytes.Join([][]byte{modern, call(cmdWrite, 0, 1, 512, 4), []byte("data"), call(cmdBlockStatus, 0, 2, 0, 1<<20), call(cmdRead, 0, 3, 100, 1<<19)}, nil))
	f.Add(bytes.Join([][]byte{modern, call(cmdRead, flagDF, 1, 0, 1<<20), call(cmdRead, 0, 1, 1<<63, 512), call(cmdDisconnect, 0, 0, 0, 0)}, nil))
	f.Add(bytes.Join([][]byte{be32(fixedNewstyle), option(optExportName), call(cmdRead, 0, 1, 0, 1000), call(cmdFlush, 0, 2, 0, 0)}, nil))
	f.Fuzz(func(t *testing.T, sent []byte) {
		s := &Server{Exports: []Export{{Disk: strict{t, 1 << 20}}}}
		_ = s.ServeConn(t.Context(), &line{Reader: bytes.NewReader(sent)}) // whatever it comes to
		if !s.memory.lent.TryAcquire(maxServed) || s.memory.used != s.memory.held() || len(s.free) != 0 {
			t.Error("memory is lost")
		}
	})
}
