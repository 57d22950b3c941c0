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
	one, two := &memoryDisk{data: sparseContent(1 << 20)}, &writableDisk{memoryDisk: memoryDisk{data: make([]byte, 3<<20)}}
	path := serveOn(t, &Server{Exports: []Export{{Name: "one", Description: "the first", Disk: one}, {Name: "two", Disk: two}, {Name: "kept", Disk: two, ReadOnly: true}}})
	c := dialRaw(t, path)
	c.send(be32(fixedNewstyle | noZeroes))
	expect := func(name string, got []optionReply, want ...optionReply) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: got replies %v, want %d", name, got, len(want))
		}
		for i := range want {
			if got[i].kind != want[i].kind || want[i].data != nil && !bytes.Equal(got[i].data, want[i].data) {
				t.Errorf("%s: reply %d is %#x %q, want %#x %q", name, i, got[i].kind, got[i].data, want[i].kind, want[i].data)
			}
		}
	}
	ack := optionReply{kind: repAck, data: []byte{}}
	server := func(name, description string) optionReply {
		return optionReply{repServer, append(lengthPrefixed(name), description...)}
	}
	info := func(size uint64, flags uint16) optionReply {
		return optionReply{repInfo, bytes.Join([][]byte{be16(infoExport), be64(size), be16(flags)}, nil)}
	}
	expect("LIST", c.sendOption(optList), server("one", "the first"), server("two", ""), server("kept", ""), ack)
	expect("LIST with data", c.sendOption(optList, []byte("x")), optionReply{kind: repInvalid})
	expect("an unknown option", c.sendOption(99, []byte("x")), optionReply{kind: repUnsupported})
	expect("STARTTLS without TLS", c.sendOption(optStartTLS), optionReply{kind: repUnsupported})
	expect("contexts before structured replies", c.sendOption(optSetContext, lengthPrefixed(""), be32(0)), optionReply{kind: repInvalid})
	expect("INFO", c.sendOption(optInfo, lengthPrefixed("two"), be16(0)), info(3<<20, hasFlags|sendFlush|multiConn), ack)
	expect("STRUCTURED_REPLY", c.sendOption(optStructured), ack)
	expect("INFO, structured", c.sendOption(optInfo, lengthPrefixed(""), be16(3), be16(infoName), be16(infoDescription), be16(infoBlockSize)),
		info(1<<20, hasFlags|readOnly|sendDF|multiConn),
		optionReply{repInfo, append(be16(infoName), "one"...)}, optionReply{repInfo, append(be16(infoDescription), "the first"...)},
		optionReply{repInfo, bytes.Join([][]byte{be16(infoBlockSize), be32(1), be32(4096), be32(16 << 20)}, nil)}, ack)
	expect("INFO of an unknown export", c.sendOption(optInfo, lengthPrefixed("three"), be16(0)), optionReply{kind: repUnknown})
	expect("INFO, cut short", c.sendOption(optInfo, be32(100), []byte("two")), optionReply{kind: repInvalid})
	expect("INFO, too long", c.sendOption(optInfo, lengthPrefixed("two"), be16(0), be16(0)), optionReply{kind: repInvalid})
	context := optionReply{repContext, append(be32(contextID), contextAllocation...)}
	expect("LIST_META_CONTEXT of all", c.sendOption(optListContext, lengthPrefixed("two"), be32(0)), context, ack)
	expect("LIST_META_CONTEXT of base:", c.sendOption(optListContext, lengthPrefixed("two"), be32(1), lengthPrefixed("base:")), context, ack)
	expect("SET_META_CONTEXT of none", c.sendOption(optSetContext, lengthPrefixed("two"), be32(1), lengthPrefixed("x-other:y")), ack)
	expect("SET_META_CONTEXT of an unknown export", c.sendOption(optSetContext, lengthPrefixed("three"), be32(1), lengthPrefixed(contextAllocation)), optionReply{kind: repUnknown})
	expect("SET_META_CONTEXT, cut short", c.sendOption(optSetContext, lengthPrefixed("two"), be32(1<<31), lengthPrefixed(contextAllocation)), optionReply{kind: repInvalid})
	expect("SET_META_CONTEXT", c.sendOption(optSetContext, lengthPrefixed("two"), be32(2), lengthPrefixed("x-other:y"), lengthPrefixed(contextAllocation)), context, ack)
	expect("GO to another export", c.sendOption(optGo, lengthPrefixed("kept"), be16(0)), info(3<<20, hasFlags|readOnly|sendDF|multiConn), ack)
	c.send(requestBytes(cmdBlockStatus, 0, 5, 0, 512)) // the context was set for another export
	if code, _, _ := errorOf(c.readChunk()); code != errInval {
		t.Errorf("block status without a context: error %d, want %d", code, errInval)
	}
}

// A handshake that ends with EXPORT_NAME succeeds, with and without padding.
func TestExportName(t *testing.T) {
	path := serveOn(t, &Server{Exports: []Export{{Name: "one", Disk: &memoryDisk{data: make([]byte, 512)}}}})
	for flags, length := range map[uint32]int{fixedNewstyle | noZeroes: 10, fixedNewstyle: 134, 0: 134} {
		c := dialRaw(t, path)
		c.send(be32(flags), optionBytes(optExportName, []byte("one")), requestBytes(cmdRead, 0, 7, 0, 512))
		if end := c.read(length); binary.BigEndian.Uint64(end) != 512 {
			t.Errorf("flags %d: got % x, want size 512", flags, end)
		}
		if reply := c.read(16 + 512); !bytes.Equal(reply[:16], bytes.Join([][]byte{be32(replyMagic), be32(0), be64(7)}, nil)) {
			t.Errorf("got reply % x, want success with cookie 7", reply[:16])
		}
	}
}

// Each violation ends the connection, and the log has the reason.
func TestProtocolViolationsEndConnection(t *testing.T) {
	hello := be32(fixedNewstyle | noZeroes)
	goOn := optionBytes(optExportName, []byte("one"))
	for reason, sent := range map[string][]byte{
		"unknown flags: 0x8":              be32(8),
		"magic number 0x4e42444d41474943": append(hello, "NBDMAGIC00000000"...),
		"and 4294967295 bytes":            bytes.Join([][]byte{hello, be64(optionMagic), be32(optList), be32(1<<32 - 1)}, nil),
		"more than 256 NBD options":       append(hello, bytes.Repeat(optionBytes(optList, []byte("x")), 256)...),
		"does not exist":                  append(hello, optionBytes(optExportName, []byte("two"))...),
		"request with magic number 0x0":   bytes.Join([][]byte{hello, goOn, make([]byte, 28)}, nil),
		"an NBD write of 16777217 bytes":  bytes.Join([][]byte{hello, goOn, requestBytes(cmdWrite, 0, 1, 0, 16<<20+1)}, nil),
		"NBD client lost":                 bytes.Join([][]byte{hello, goOn, requestBytes(cmdWrite, 0, 1, 0, 512), make([]byte, 100)}, nil),
	} {
		s := &Server{Exports: []Export{{Name: "one", Disk: &writableDisk{memoryDisk: memoryDisk{data: make([]byte, 4096)}}}}}
		log := attachLog(s)
		ours, theirs := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- s.ServeConn(t.Context(), theirs) }()
		go func() { _, _ = io.Copy(io.Discard, ours) }()
		_, _ = ours.Write(sent) // the server may end before it has read everything
		if reason == "NBD client lost" {
			_ = ours.Close()
		}
		if err := <-ended; (err == nil) != (reason == "NBD client lost") {
			t.Errorf("%s: ServeConn returned %v", reason, err)
		}
		if !strings.Contains(log.String(), reason) {
			t.Errorf("%q is not in the log: %s", reason, log)
		}
		_ = ours.Close()
	}
}

// A client whose handshake arrives in single bytes is served.
func TestHandshakeInSingleBytes(t *testing.T) {
	path := serveOn(t, &Server{Exports: []Export{{Disk: &memoryDisk{data: []byte(strings.Repeat("x", 512))}}}})
	c := dialRaw(t, path)
	for _, b := range bytes.Join([][]byte{be32(fixedNewstyle), optionBytes(optStructured), optionBytes(optGo, lengthPrefixed(""), be16(0)), requestBytes(cmdRead, 0, 1, 500, 12)}, nil) {
		c.send([]byte{b})
	}
	c.read(20 + 20 + 12 + 20)
	if got := c.readChunk(); got.kind != chunkData || string(got.data[8:]) != "xxxxxxxxxxxx" {
		t.Errorf("got chunk %+v, want the data", got)
	}
}

// A handshake that takes too long ends the connection. A connection without requests stays open.
func TestHandshakeTimeout(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	s := &Server{Exports: []Export{{Disk: &memoryDisk{data: make([]byte, 512)}}}, Limits: Limits{Handshake: 10 * time.Second, Stall: 2 * time.Second}}
	idle := dialRaw(t, serveOn(t, s))
	idle.selectExport("")
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() { _, _ = io.Copy(io.Discard, ours) }()
	if err := s.ServeConn(t.Context(), theirs); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "handshake") {
		t.Errorf("got %v, want kind Transient for the handshake", err)
	}
	idle.send(requestBytes(cmdRead, 0, 1, 0, 512))
	if k := idle.readChunk(); k.kind != chunkData {
		t.Errorf("got chunk of kind %d, want data", k.kind)
	}
}

// The client of this package reads and writes disks of the server.
func TestPackageClientReadsAndWrites(t *testing.T) {
	d := &writableDisk{memoryDisk: memoryDisk{data: sparseContent(3 << 20)}}
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
		t.Errorf("ReadAt returned other content, error %v", err)
	}
	if err := errors.Join(c.Close(), <-ended); err != nil {
		t.Error(err)
	}
}

func TestReads(t *testing.T) {
	data := sparseContent(8 << 20)
	for name, d := range map[string]Reader{"reader": &memoryDisk{data: data}, "viewer": &viewedDisk{memoryDisk: memoryDisk{data: data}}} {
		c := dialRaw(t, serveOn(t, &Server{Exports: []Export{{Disk: d}}}))
		c.selectExport("")
		check := func(flags uint16, off, length int) (chunks, holes int) {
			t.Helper()
			c.send(requestBytes(cmdRead, flags, 9, uint64(off), uint32(length)))
			got := bytes.Repeat([]byte{0xff}, length)
			covered := 0
			for {
				k := c.readChunk()
				if k.cookie != 9 {
					t.Fatalf("got cookie %d, want 9", k.cookie)
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
					t.Fatalf("%s: unexpected chunk %+v", name, k)
				}
				if k.flags == chunkDone {
					break
				}
			}
			if covered != length || !bytes.Equal(got, data[off:][:length]) {
				t.Errorf("%s: the content at %d differs", name, off)
			}
			return chunks, holes
		}
		if chunks, holes := check(0, 0, 1<<20); chunks != 1 || holes != 0 {
			t.Errorf("%s: %d chunks, %d holes before any block status, want 1 and 0", name, chunks, holes)
		}
		if chunks, holes := check(0, 100<<10, 3<<20); chunks != 4 || holes != 0 {
			t.Errorf("%s: %d chunks, %d holes before any block status, want 4 and 0", name, chunks, holes)
		}
		c.send(requestBytes(cmdBlockStatus, flagReqOne, 8, 0, 8<<20))
		c.readChunk()
		if _, holes := check(0, 123, 3<<20+5); holes == 0 {
			t.Errorf("%s: no holes after a block status", name)
		}
		check(0, 0, 8<<20)
		if chunks, holes := check(flagDF, 0, 8<<20); chunks != 1 || holes != 0 {
			t.Errorf("%s: %d chunks, %d holes without fragments, want 1 and 0", name, chunks, holes)
		}
		check(0, 8<<20-1, 1)
		c.send(requestBytes(cmdRead, 0, 9, 8<<20, 0))
		if k := c.readChunk(); k.kind != chunkNone {
			t.Errorf("%s: empty read: got chunk %+v, want none", name, k)
		}
		c.send(requestBytes(cmdDisconnect, 0, 0, 0, 0))
		if !c.isClosed() {
			t.Error("the connection is open after DISCONNECT")
		}
		if v, ok := d.(*viewedDisk); ok && (v.lent.Load() != 0 || v.most.Load() == 0) {
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
	c := dialRaw(t, serveOn(t, &Server{Exports: []Export{{Disk: &memoryDisk{data: data}}}}))
	c.selectExport("")
	status := func(flags uint16, off uint64, length uint32) (out []uint32) {
		t.Helper()
		c.send(requestBytes(cmdBlockStatus, flags, 3, off, length))
		k := c.readChunk()
		if k.kind != chunkStatus || k.flags != chunkDone || binary.BigEndian.Uint32(k.data) != contextID {
			t.Fatalf("unexpected chunk %+v", k)
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
		if len(got) != len(c.want) || !bytes.Equal(encodeUint32s(got), encodeUint32s(c.want)) {
			t.Errorf("%d bytes at %d: %v, want %v", c.length, c.off, got, c.want)
		}
	}
}

func encodeUint32s(list []uint32) (out []byte) {
	for _, n := range list {
		out = append(out, be32(n)...)
	}
	return out
}

// noMapDisk is a disk whose Extents fails.
type noMapDisk struct{ memoryDisk }

func (*noMapDisk) Extents(context.Context, disk.Range) ([]disk.Extent, error) {
	return nil, errors.New("the host has no map")
}

// Without a map, everything is data, and the log has the reason.
func TestBlockStatusWithoutMap(t *testing.T) {
	s := &Server{Exports: []Export{{Disk: &noMapDisk{memoryDisk{data: make([]byte, 1<<20)}}}}}
	log := attachLog(s)
	c := dialRaw(t, serveOn(t, s))
	c.selectExport("")
	c.send(requestBytes(cmdBlockStatus, 0, 3, 0, 1<<20))
	if k := c.readChunk(); k.kind != chunkStatus || !bytes.Equal(k.data[4:], encodeUint32s([]uint32{1 << 20, 0})) {
		t.Errorf("got chunk %+v, want all data", k)
	}
	if !strings.Contains(log.String(), "the host has no map") {
		t.Errorf("the reason is not in the log: %s", log)
	}
}

// Requests that cannot be executed have an error with a message, and the connection stays open.
func TestErrors(t *testing.T) {
	d := &memoryDisk{data: sparseContent(4 << 20), bad: disk.Range{Off: 3<<20 + 512, Len: 512}, err: errBad}
	s := &Server{Exports: []Export{{Disk: d}}}
	log := attachLog(s)
	s.now = func() time.Time { return time.Unix(1000, 0) }
	c := dialRaw(t, serveOn(t, s))
	c.selectExport("")
	for _, q := range []struct {
		sent   []byte
		code   uint32
		reason string
	}{
		{requestBytes(cmdRead, 0, 1, 4<<20, 1), errInval, "outside of the disk"},
		{requestBytes(cmdRead, 0, 1, 1<<63, 512), errInval, "outside of the disk"},
		{requestBytes(cmdRead, 0, 1, 0, 32<<20+1), errInval, "at most 33554432 bytes"},
		{requestBytes(cmdRead, flagDF, 1, 0, 16<<20+1), errInval, "at most 16777216 bytes"},
		{requestBytes(cmdRead, 1, 1, 0, 512), errInval, "flags 0x1"},
		{requestBytes(cmdBlockStatus, 0, 1, 4<<20, 512), errInval, "outside of the disk"},
		{requestBytes(cmdBlockStatus, flagDF, 1, 0, 512), errInval, "flags 0x4"},
		{requestBytes(cmdBlockStatus, 0, 1, 0, 0), errInval, "the range is empty"},
		{append(requestBytes(cmdWrite, 0, 1, 0, 512), make([]byte, 512)...), errPerm, "read-only"},
		{requestBytes(cmdFlush, 0, 1, 0, 0), errPerm, "read-only"},
		{requestBytes(cmdZeroes, 0, 1, 0, 512), errInval, "not supported"},
		{requestBytes(77, 0, 1, 0, 512), errInval, "not supported"},
		{requestBytes(cmdRead, flagDF, 1, 3<<20, 1024), errIO, "sector 7 is bad"},
	} {
		c.send(q.sent)
		k := c.readChunk()
		code, reason, _ := errorOf(k)
		if code != q.code || !strings.Contains(reason, q.reason) || k.flags != chunkDone {
			t.Errorf("% x: error %d, %s; want %d, %s", q.sent[:28], code, reason, q.code, q.reason)
		}
	}
	// Pieces before the error arrive, and the offset of the error is that of its piece.
	c.send(requestBytes(cmdRead, 0, 1, 1<<20, 3<<20))
	for range 2 {
		if k := c.readChunk(); k.kind != chunkData || k.flags != 0 {
			t.Errorf("got chunk of kind %d with flags %d, want data without flags", k.kind, k.flags)
		}
	}
	k := c.readChunk()
	if code, reason, off := errorOf(k); k.kind != chunkErrorOffset || code != errIO || off != 3<<20 || reason != errBad.Error() {
		t.Errorf("got error %d at %d: %s, want EIO at 3 MiB", code, off, reason)
	}
	if n := strings.Count(log.String(), errBad.Error()); n != 1 {
		t.Errorf("%d log lines for the error in one second, want 1: %s", n, log)
	}
}

// Writes change the disk, and errors of the disk are sent to the client.
func TestWrites(t *testing.T) {
	d := &writableDisk{memoryDisk: memoryDisk{data: make([]byte, 1<<20)}}
	c := dialRaw(t, serveOn(t, &Server{Exports: []Export{{Disk: d}}}))
	if flags := c.selectExport(""); flags&readOnly != 0 || flags&sendFlush == 0 {
		t.Errorf("flags %#x, want a writable export with flush", flags)
	}
	write := func(off uint64, text string) []byte {
		return append(requestBytes(cmdWrite, 0, 1, off, uint32(len(text))), text...)
	}
	c.send(write(1000, "hello"), requestBytes(cmdFlush, 0, 2, 0, 0))
	for range 2 {
		if k := c.readChunk(); k.kind != chunkNone || k.flags != chunkDone {
			t.Errorf("got chunk %+v, want success", k)
		}
	}
	if got := d.content()[1000:1005]; string(got) != "hello" || d.synced.Load() != 1 {
		t.Errorf("the disk has %q after %d syncs, want %q after 1", got, d.synced.Load(), "hello")
	}
	c.send(write(1<<20-1, "xx"))
	if code, _, _ := errorOf(c.readChunk()); code != errNoSpc {
		t.Errorf("write beyond the end: error %d, want %d", code, errNoSpc)
	}
	for err, want := range map[error]uint32{fault.New(fault.Full, "full"): errNoSpc, fault.New(fault.Unsupported, "too much"): errNoSpc, errBad: errIO} {
		d.mu.Lock()
		d.err = err
		d.mu.Unlock()
		c.send(write(0, "x"))
		if code, reason, _ := errorOf(c.readChunk()); code != want || reason != err.Error() {
			t.Errorf("got error %d %s, want %d %v", code, reason, want, err)
		}
	}
}

// Requests do not wait for each other, up to Limits.Requests.
func TestParallelRequests(t *testing.T) {
	d := &memoryDisk{data: sparseContent(1 << 20), gate: make(chan struct{})}
	c := dialRaw(t, serveOn(t, &Server{Exports: []Export{{Disk: d}}, Limits: Limits{Requests: 4}}))
	c.selectExport("")
	for cookie := range uint64(3) {
		c.send(requestBytes(cmdRead, 0, cookie, 0, 512))
	}
	c.send(requestBytes(cmdBlockStatus, flagReqOne, 99, 0, 512))
	if k := c.readChunk(); k.cookie != 99 {
		t.Errorf("got reply to request %d, want 99", k.cookie)
	}
	// The first of the next two requests fills the slots, so that the second is not read until another ends.
	c.send(requestBytes(cmdRead, 0, 3, 0, 512), requestBytes(cmdBlockStatus, flagReqOne, 100, 0, 512))
	d.gate <- struct{}{}
	if k := c.readChunk(); k.cookie == 100 || k.kind != chunkData {
		t.Errorf("got reply to request %d, want a read", k.cookie)
	}
	close(d.gate)
	seen := map[uint64]bool{}
	for range 4 {
		seen[c.readChunk().cookie] = true
	}
	if !seen[100] || len(seen) != 4 {
		t.Errorf("got replies to %v, want 4 with request 100", seen)
	}
}

// The connection of a client that does not read its replies is closed, and its memory is released.
func TestStalledClientIsDisconnected(t *testing.T) {
	d := &viewedDisk{memoryDisk: memoryDisk{data: sparseContent(64 << 20)}}
	s := &Server{Exports: []Export{{Disk: d}}, Limits: Limits{Stall: 100 * time.Millisecond}}
	log := attachLog(s)
	ours, theirs := net.Pipe()
	defer ours.Close()
	ended := make(chan error, 1)
	go func() { ended <- s.ServeConn(t.Context(), theirs) }()
	c := &rawClient{ours, t}
	c.read(18)
	c.selectExport("")
	for cookie := range uint64(10_000) { // until the server stops reading
		if _, err := ours.Write(requestBytes(cmdRead, 0, cookie, 0, 1<<20)); err != nil {
			break
		}
	}
	if err := <-ended; !fault.Is(err, fault.Transient) || !strings.Contains(log.String(), "does not read its replies") {
		t.Errorf("got %v, want kind Transient; log: %s", err, log)
	}
	if d.lent.Load() != 0 {
		t.Errorf("%d views are not released", d.lent.Load())
	}
	if most := d.most.Load(); most > maxUnsent>>20+1 {
		t.Errorf("the client used %d MiB, want at most %d", most, maxUnsent>>20+1)
	}
}

// The connection of a client that sends only a part of a write is closed.
func TestIncompleteWrite(t *testing.T) {
	d := &writableDisk{memoryDisk: memoryDisk{data: make([]byte, 1<<20)}}
	for _, readOnly := range []bool{false, true} {
		s := &Server{Exports: []Export{{Disk: d, ReadOnly: readOnly}}, Limits: Limits{Stall: 100 * time.Millisecond}}
		ours, theirs := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- s.ServeConn(t.Context(), theirs) }()
		c := &rawClient{ours, t}
		c.read(18)
		c.selectExport("")
		c.send(requestBytes(cmdWrite, 0, 1, 0, 1<<20), make([]byte, 1000))
		if err := <-ended; !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "does not arrive") {
			t.Errorf("got %v, want kind Transient for the write", err)
		}
		if s.memory.used != s.memory.freeBytes() {
			t.Errorf("%d bytes are not released", s.memory.used-s.memory.freeBytes())
		}
		_ = ours.Close()
	}
}

// If a client disconnects with requests in work, all views are released.
func TestClientDisconnects(t *testing.T) {
	d := &viewedDisk{memoryDisk: memoryDisk{data: sparseContent(1 << 20), gate: make(chan struct{})}}
	s := &Server{Exports: []Export{{Disk: d}}}
	ours, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.ServeConn(t.Context(), theirs) }()
	c := &rawClient{ours, t}
	c.read(18)
	c.selectExport("")
	for cookie := range uint64(10) {
		c.send(requestBytes(cmdRead, 0, cookie, 0, 512))
	}
	d.gate <- struct{}{}
	c.readChunk()
	c.send(requestBytes(cmdRead, 0, 11, 0, 512)[:13])
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
	d := &viewedDisk{memoryDisk: memoryDisk{data: sparseContent(1 << 20), gate: make(chan struct{})}}
	s := &Server{Exports: []Export{{Disk: d}}}
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	path := l.Addr().String()
	greeted, idle, busy := dialRaw(t, path), dialRaw(t, path), dialRaw(t, path)
	idle.selectExport("")
	busy.selectExport("")
	busy.send(requestBytes(cmdRead, 0, 1, 0, 512), requestBytes(cmdBlockStatus, 0, 2, 0, 512))
	busy.readChunk() // the read is still in work
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, c := range []*rawClient{greeted, idle, busy} {
		if !c.isClosed() {
			t.Error("a connection is open after the cancellation")
		}
	}
	if d.lent.Load() != 0 {
		t.Errorf("%d views are not released", d.lent.Load())
	}
}

// A client beyond Limits.Connections is refused until another client has disconnected.
func TestConnectionLimit(t *testing.T) {
	s := &Server{Exports: []Export{{Disk: &memoryDisk{data: make([]byte, 512)}}}, Limits: Limits{Connections: 2}}
	log := attachLog(s)
	path := serveOn(t, s)
	first, second := dialRaw(t, path), dialRaw(t, path)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if third := (&rawClient{conn, t}); !third.isClosed() {
		t.Error("a third client was served, want a closed connection")
	}
	if !strings.Contains(log.String(), "2 clients are connected") {
		t.Errorf("the reason is not in the log: %s", log)
	}
	first.send(be32(fixedNewstyle))
	first.sendOption(optAbort)
	if !first.isClosed() {
		t.Error("the connection is open after ABORT")
	}
	second.selectExport("")
	for {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := conn.Read(make([]byte, 1))
		_ = conn.Close()
		if n == 1 {
			return // the slot of the first client is free
		}
	}
}

func TestInvalidExports(t *testing.T) {
	d := &memoryDisk{data: make([]byte, 512)}
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
			t.Errorf("got %v, want kind Invalid with %q", err, want)
		}
		_ = ours.Close()
	}
}

// strictDisk is a disk that fails the test for calls with invalid arguments.
type strictDisk struct {
	t    *testing.T
	size int64
}

func (s strictDisk) Size() int64 { return s.size }

func (s strictDisk) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > s.size || int64(len(p)) > s.size-off || len(p) > maxServed {
		s.t.Errorf("invalid read or write of %d bytes at %d", len(p), off)
	}
	return nil
}

func (s strictDisk) WriteAt(ctx context.Context, p []byte, off int64) error {
	return s.ReadAt(ctx, p, off)
}

func (s strictDisk) Sync(context.Context) error { return nil }

func (s strictDisk) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	if r.Off < 0 || r.Len <= 0 || r.Off > s.size || r.Len > s.size-r.Off {
		s.t.Errorf("invalid range %v for Extents", r)
	}
	half := r.Len / 2
	return []disk.Extent{{Range: disk.Range{Off: r.Off, Len: r.Len - half}, Kind: disk.Zero}, {Range: disk.Range{Off: r.End() - half, Len: half}}}, nil
}

// recordedConn is a connection whose client has sent all its bytes already.
type recordedConn struct {
	io.Reader
	net.Conn
	sent int
}

func (l *recordedConn) Read(p []byte) (int, error) { return l.Reader.Read(p) }

func (l *recordedConn) Write(p []byte) (int, error) { l.sent += len(p); return len(p), nil }

func (*recordedConn) Close() error                     { return nil }
func (*recordedConn) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (*recordedConn) SetDeadline(time.Time) error      { return nil }
func (*recordedConn) SetReadDeadline(time.Time) error  { return nil }
func (*recordedConn) SetWriteDeadline(time.Time) error { return nil }

// FuzzServe serves a client that has sent random bytes. The server does not panic, uses only valid ranges of the disk,
// ends, and releases its memory.
func FuzzServe(f *testing.F) {
	hello := be32(fixedNewstyle | noZeroes)
	modern := bytes.Join([][]byte{
		hello, optionBytes(optList), optionBytes(optStructured), optionBytes(optListContext, lengthPrefixed(""), be32(0)), optionBytes(optSetContext, lengthPrefixed(""), be32(1), lengthPrefixed(contextAllocation)),
		optionBytes(optInfo, lengthPrefixed(""), be16(1), be16(infoBlockSize)), optionBytes(optGo, lengthPrefixed(""), be16(0)),
	}, nil)
	f.Add(append(hello, optionBytes(optGo, lengthPrefixed(""), be16(0))...))
	f.Add(bytes.Join([][]byte{modern, requestBytes(cmdWrite, 0, 1, 512, 4), []byte("data"), requestBytes(cmdBlockStatus, 0, 2, 0, 1<<20), requestBytes(cmdRead, 0, 3, 100, 1<<19)}, nil))
	f.Add(bytes.Join([][]byte{modern, requestBytes(cmdRead, flagDF, 1, 0, 1<<20), requestBytes(cmdRead, 0, 1, 1<<63, 512), requestBytes(cmdDisconnect, 0, 0, 0, 0)}, nil))
	f.Add(bytes.Join([][]byte{be32(fixedNewstyle), optionBytes(optExportName), requestBytes(cmdRead, 0, 1, 0, 1000), requestBytes(cmdFlush, 0, 2, 0, 0)}, nil))
	f.Fuzz(func(t *testing.T, sent []byte) {
		s := &Server{Exports: []Export{{Disk: strictDisk{t, 1 << 20}}}}
		_ = s.ServeConn(t.Context(), &recordedConn{Reader: bytes.NewReader(sent)}) // may return any error
		if !s.memory.lent.TryAcquire(maxServed) || s.memory.used != s.memory.freeBytes() || len(s.free) != 0 {
			t.Error("memory is not released")
		}
	})
}
