package vsphere

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab/nfchost"
	"github.com/decamp/decamp/test/lane"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vim25/types"
)

// nfcPath is web01's disk.
const nfcPath = "[datastore1] web01/web01.vmdk"

// openWeb01 gets a ticket for web01 and opens its disk in a session without TLS.
func openWeb01(t testing.TB, l *Lab, size, count uint32) *nfcFile {
	t.Helper()
	f, err := openNFC(t, l, "web01", nfcPath, false, size, count)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func openNFC(t testing.TB, l *Lab, vm, path string, secure bool, size, count uint32) (*nfcFile, error) {
	t.Helper()
	ticket := nfcTicketOf(t, l, vm)
	c := dialNFC(t, ticket, secure)
	c.runHandshake(true, "0b000000")
	return c.openFile(size, count, path)
}

// nfcTicketOf returns a ticket for a VM, from a new SOAP session.
func nfcTicketOf(t testing.TB, l *Lab, vm string) types.HostServiceTicket {
	t.Helper()
	c := login(t, l)
	ticket, err := nfcTicketFor(c.Client, allVMs(t, c.Client)[vm].Self)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

func nfcLab(t *testing.T, n NFC) *Lab {
	t.Helper()
	return startLab(t, Config{NFC: n, VMs: []VM{web01()}})
}

func TestNFCTicketOfAnESXi(t *testing.T) {
	l := nfcLab(t, NFC{})
	c := login(t, l)
	service, err := nfcServiceOf(c.Client)
	if err != nil || service.Value != "ha-nfc-service" || service.Type != "NfcService" {
		t.Errorf("service %v %v", service, err)
	}
	vm := allVMs(t, c.Client)["web01"].Self
	one, err := nfcTicketFor(c.Client, vm)
	if err != nil {
		t.Fatal(err)
	}
	if one.Host != "" || one.Service != "nfc" || one.ServiceVersion != "1.1" || one.Port == 0 || len(one.SslThumbprint) != 20*3-1 || one.SslCertificate != "" {
		t.Errorf("ticket %+v", one)
	}
	if _, port, _ := net.SplitHostPort(l.NFCAddr("")); port != fmt.Sprint(one.Port) {
		t.Errorf("the ticket names port %d, the host listens at %s", one.Port, l.NFCAddr(""))
	}
	if two, err := nfcTicketFor(c.Client, vm); err != nil || two.SessionId == one.SessionId {
		t.Errorf("a second ticket: %v, the same: %v", err, two.SessionId == one.SessionId)
	}
	if _, err := nfcTicketFor(c.Client, types.ManagedObjectReference{Type: "VirtualMachine", Value: "999"}); !fault.Is(err, &types.ManagedObjectNotFound{}) {
		t.Errorf("a missing VM: %v", err)
	}
	// The wrapper stays in the session. The simulator's own methods must still work.
	if got := allVMs(t, c.Client); len(got) != 1 {
		t.Errorf("%d VMs", len(got))
	}
}

func TestNFCTicketOfAVCenter(t *testing.T) {
	db := web01()
	db.Name, db.Host = "db01", "esx2.lab"
	l := startLab(t, Config{VCenter: true, VMs: []VM{web01(), db}})
	c := login(t, l)
	if service, err := nfcServiceOf(c.Client); err != nil || service.Value != "nfcService" {
		t.Errorf("service %v %v", service, err)
	}
	vms := allVMs(t, c.Client)
	one, err := nfcTicketFor(c.Client, vms["web01"].Self)
	if err != nil || one.Host != "127.0.0.1" || one.Service != "vpxa-nfc" {
		t.Fatalf("ticket %+v: %v", one, err)
	}
	two, err := nfcTicketFor(c.Client, vms["db01"].Self)
	if err != nil || two.Port == one.Port || two.SslThumbprint == one.SslThumbprint {
		t.Errorf("the second host has the address or certificate of the first: %+v %v", two, err)
	}
	// A ticket for one host is invalid on the other.
	two.Port, two.SslThumbprint = one.Port, one.SslThumbprint
	if _, err := loginNFC(t, two, false); err == nil || !strings.Contains(err.Error(), "530") {
		t.Errorf("ticket at the wrong host: %v", err)
	}
}

func TestNFCLibVersion(t *testing.T) {
	for version, want := range map[string]uint32{"8.0.3": 11, "9.0.1": 11, "7.0.3": 9, "7.0.1": 7, "6.7.0": 2} {
		cfg := Config{Version: version}
		if got := (NFC{}).forVersion(&cfg); got.LibVersion != want || got.NoSHA256 != (version == "7.0.1" || version == "6.7.0") {
			t.Errorf("%s: %+v", version, got)
		}
	}
}

func TestNFCReadsTheDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, n := range []NFC{
		{},
		{Order: nfchost.Reversed},
		{Order: nfchost.OddFirst, Fragments: []int{1000, 65536, 7, 3000, 64536}},
		{Order: nfchost.Mixed, Packing: nfchost.Variety, Latency: Duration(time.Millisecond)},
		{Packing: nfchost.Stored, TLS13: true, LooseRecords: true},
	} {
		l := nfcLab(t, n)
		want := diskBytes(t, l)
		for _, secure := range []bool{false, true} {
			for packing := range uint32(4) {
				if secure != (packing%2 == 1) && !lane.Slow {
					continue
				}
				f, err := openNFC(t, l, "web01", nfcPath, secure, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				reads := map[uint32][2]int64{}
				const step = 1 << 20
				for off := int64(0); off < f.size; off += step {
					reads[f.requestRead(off, step, packing)] = [2]int64{off, step}
				}
				got, err := f.collectReads(reads)
				if err != nil {
					t.Fatalf("%+v secure %v packing %d: %v", n, secure, packing, err)
				}
				for id, r := range reads {
					if !bytes.Equal(got[id], want[r[0]:r[0]+r[1]]) {
						t.Errorf("%+v secure %v packing %d: wrong content at %d", n, secure, packing, r[0])
					}
				}
				f.closeSession()
			}
		}
	}
}

// closeSession closes the file and the session as one real client does: with the short
// requests and message 4. The host must close the connection.
func (f *nfcFile) closeSession() {
	f.t.Helper()
	if m, err := f.call(5, longBytes(f.handle), ""); err != nil || len(m.payload) != 8 {
		f.t.Errorf("close file: %v", err)
	}
	if m, err := f.call(3, wordBytes(0), ""); err != nil || len(m.payload) != 4 {
		f.t.Errorf("close session: %v", err)
	}
	f.send("04000000 +260 x 00")
	if n, err := io.Copy(io.Discard, f.raw); n != 0 && err == nil {
		f.t.Errorf("%d bytes after the end", n)
	}
}

// The replies equal the vectors of the protocol's description.
func TestNFCVectors(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{{Name: "web01", Disks: []Disk{{Capacity: 2 << 30, Fill: 0, Controller: "lsilogic"}}}}})
	c := dialNFC(t, nfcTicketOf(t, l, "web01"), false)
	c.runHandshake(true, "0b000000")
	c.send("7ada00a1 02000000 10000000 00000000 00000000 00000100 01000000 00000000")
	c.expect("7ada00a1 02000000 10000000 00000000 00000000 00000000 00000000 00000000")
	c.send("7ada00a1 09000000 0c000000 01000000 00000000 00000000 00000000")
	c.expect("7ada00a1 09000000 0c000000 01000000 00000400 00000400 01000000")
	c.send("7ada00a1 16000000 04000000 02000000 01000000")
	c.expect("7ada00a1 16000000 04000000 02000000 00000000")

	c.opID = 3
	path := append(wordBytes(uint32(len(nfcPath)), 0, 0, 0, 2, 0x1e), make([]byte, 36)...)
	m, err := c.call(4, path, nfcPath)
	if err != nil {
		t.Fatal(err)
	}
	f := &nfcFile{nfcConn: c, handle: m.u64(8), size: int64(m.u64(28))}
	want := append(append(longBytes(0, f.handle), wordBytes(2, 0x1e, 0)...), append(longBytes(2<<30), wordBytes(512, 261, 255, 63, 0, 0)...)...)
	if !bytes.Equal(m.payload, want) {
		t.Errorf("open\n%x want\n%x", m.payload, want)
	}
	if m, err := c.call(11, append(longBytes(f.handle), wordBytes(11, 0)...), "adapterType"); err != nil ||
		!bytes.Equal(m.payload, wordBytes(0, 0, 0, 8)) || string(m.data) != "lsilogic" {
		t.Errorf("adapterType: %+v %v", m, err)
	}
	if m, err := c.call(11, append(longBytes(f.handle), wordBytes(7, 0)...), "nothing"); err != nil || !bytes.Equal(m.payload, wordBytes(0, 0, 0, 0)) {
		t.Errorf("no such key: %+v %v", m, err)
	}
	for _, tc := range []struct {
		n      int64
		pieces [][2]uint32 // start, length
	}{{512, [][2]uint32{{0, 512}}}, {66048, [][2]uint32{{0, 65536}, {65536, 512}}}} {
		id := f.requestRead(1<<30, tc.n, 0)
		for _, p := range tc.pieces {
			m, err := f.readReply()
			if err != nil {
				t.Fatal(err)
			}
			want := append(append(longBytes(0), wordBytes(1, 0)...), append(longBytes(1<<30), wordBytes(uint32(tc.n), p[0], p[1], p[1], 0)...)...)
			if m.opID != id || !bytes.Equal(m.payload, want) {
				t.Errorf("%d bytes: fragment\n%x want\n%x", tc.n, m.payload, want)
			}
		}
	}
	// A fragment of zeros takes 8 bytes with SkipZ.
	f.requestRead(0, 512, 3)
	if m, err := f.readReply(); err != nil || m.u32(12) != 3 || m.u32(36) != 8 || !bytes.Equal(m.data, wordBytes(512, 0)) {
		t.Errorf("a zero fragment: %+v %v", m, err)
	}
	// The long forms of the close requests.
	if m, err := f.call(5, longBytes(f.handle, 0), ""); err != nil || len(m.payload) != 16 {
		t.Errorf("close file: %v", err)
	}
	if m, err := f.call(3, make([]byte, 16), ""); err != nil || len(m.payload) != 16 {
		t.Errorf("close session: %v", err)
	}
	if _, err := io.ReadFull(f.raw, make([]byte, 1)); err != io.EOF {
		t.Errorf("the host does not close the connection: %v", err)
	}
}

func TestNFCHandshakeOfVersions(t *testing.T) {
	// 7.0.3 acknowledges only after message 51. A client must not wait for the reply before it.
	l := startLab(t, Config{Version: "7.0.3", VMs: []VM{web01()}})
	c := dialNFC(t, nfcTicketOf(t, l, "web01"), true)
	c.runHandshake(true, "09000000")
	// Earlier versions have no SHA-256 and no message 43.
	l = startLab(t, Config{Version: "7.0.1", VMs: []VM{web01()}})
	c = dialNFC(t, nfcTicketOf(t, l, "web01"), true)
	c.runHandshake(false, "07000000")
	c = dialNFC(t, nfcTicketOf(t, l, "web01"), true)
	c.send("2b000000 506c6169 6e546578 74000000 +248 x 00")
	c.expect("04000000 +260 x 00")
	// 6.7 has no AIO.
	l = startLab(t, Config{Version: "6.7.0", VMs: []VM{web01()}})
	c = dialNFC(t, nfcTicketOf(t, l, "web01"), false)
	for _, m := range []string{"21000000 +260 x 00", "33000000 0b000000 +256 x 00"} {
		c.send(m)
	}
	c.expect("24000000 00000000 00000000 00000000 01000000 +244 x 00")
	c.expect("33000000 02000000 +256 x 00")
	c.send("36000000 04000000 07000000 +252 x 00")
	c.send("7664646b 6e62646d6f6465")
	c.send("34000000 +260 x 00")
	c.expect("04000000 +260 x 00")
}

// A host reads one message from each TLS record. It reads a second message in the same
// record only when another record arrives.
func TestNFCOneMessagePerRecord(t *testing.T) {
	l := nfcLab(t, NFC{})
	c := dialNFC(t, nfcTicketOf(t, l, "web01"), true)
	c.send("2b000000 506c6169 6e546578 74000000 +248 x 00")
	if _, err := c.conn.Write(append(hexBytes(t, "21000000 +260 x 00"), hexBytes(t, "33000000 0b000000 +256 x 00")...)); err != nil {
		t.Fatal(err)
	}
	c.expect("24000000 00000000 00000000 00000000 01000000 +244 x 00") // immediate reply to message 33
	_ = c.raw.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := c.conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("message 51 was answered before another record arrived")
	}
}

func TestNFCTicketIsValidOnce(t *testing.T) {
	now := newClock()
	l := startLab(t, Config{Clock: now.Now, NFC: NFC{TicketFor: Duration(time.Minute)}, VMs: []VM{web01()}})
	ticket := nfcTicketOf(t, l, "web01")
	dialNFC(t, ticket, true)
	if _, err := loginNFC(t, ticket, true); err == nil || !strings.Contains(err.Error(), "530") {
		t.Errorf("used twice: %v", err)
	}
	late := nfcTicketOf(t, l, "web01")
	now.advance(time.Minute)
	if _, err := loginNFC(t, late, true); err == nil || !strings.Contains(err.Error(), "530") {
		t.Errorf("expired: %v", err)
	}
}

func TestNFCRefusals(t *testing.T) {
	other := web01()
	other.Name = "other"
	on := web01()
	on.Name, on.PoweredOn, on.Snapshots = "on", true, []string{"s1"}
	l := startLab(t, Config{VMs: []VM{web01(), other, on}})
	for _, tc := range []struct {
		vm, path string
		code     uint64
		text     string
	}{
		{"web01", "[datastore1] other/other.vmdk", 11, "permission check failed"},
		{"web01", "[datastore1] web01/web01-flat.vmdk", 11, "permission check failed"},
		{"web01", "nonsense", 11, "permission check failed"},
		{"on", "[datastore1] on/on-000001.vmdk", 1, "cannot be opened in multiwriter mode"},
		{"on", "[datastore1] on/on.vmdk", 0, ""},
	} {
		_, err := openNFC(t, l, tc.vm, tc.path, false, 0, 0)
		var refused *nfcError
		if errors.As(err, &refused) != (tc.code != 0) || refused != nil && (refused.code != tc.code || !strings.Contains(refused.text, tc.text)) {
			t.Errorf("%s: %v", tc.path, err)
		}
	}
	f := openWeb01(t, l, 0, 0)
	for name, send := range map[string]func() uint32{
		"unaligned":    func() uint32 { return f.requestRead(1, 512, 0) },
		"short":        func() uint32 { return f.requestRead(0, 100, 0) },
		"empty":        func() uint32 { return f.requestRead(0, 0, 0) },
		"past the end": func() uint32 { return f.requestRead(f.size, 512, 0) },
		"over the end": func() uint32 { return f.requestRead(f.size-512, 1024, 0) },
		"compression":  func() uint32 { return f.requestRead(0, 512, 4) },
		"too long":     func() uint32 { return f.requestRead(0, 24<<20, 0) },
	} {
		id := send()
		var refused *nfcError
		if _, err := f.readReply(); !errors.As(err, &refused) || refused.opID != id {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The session continues. It permits one file, for reading only.
	if _, err := f.readAt(0, 4096, 0); err != nil {
		t.Errorf("after refusals: %v", err)
	}
	payload := append(wordBytes(uint32(len(nfcPath)), 0, 0, 0, 2, 0x1a), make([]byte, 36)...)
	var refused *nfcError
	if _, err := f.call(4, payload, nfcPath); !errors.As(err, &refused) || refused.code != 11 {
		t.Errorf("open for writing: %v", err)
	}
	payload[20] = 0x1e
	if _, err := f.call(4, payload, nfcPath); !errors.As(err, &refused) {
		t.Errorf("a second file: %v", err)
	}
}

func TestNFCBuffers(t *testing.T) {
	l := nfcLab(t, NFC{})
	for _, tc := range []struct {
		size, count uint32
		ok          bool
	}{
		{0, 0, true}, {64 << 10, 1, true}, {1 << 20, 4, true}, {2 << 20, 8, true},
		{16 << 20, 1, false}, {2 << 20, 9, false}, {100_000, 1, false},
	} {
		f, err := openNFC(t, l, "web01", nfcPath, false, tc.size, tc.count)
		if (err == nil) != tc.ok {
			t.Errorf("%d x %d: %v", tc.size, tc.count, err)
		}
		if err != nil {
			continue
		}
		id := f.requestRead(0, 4<<20, 0)
		for left := int64(4 << 20); left > 0; {
			m, err := f.readReply()
			if err != nil || m.opID != id {
				t.Fatal(err)
			}
			if want := min(left, int64(max(tc.size, 64<<10))); int64(m.u32(32)) != want {
				t.Errorf("%d x %d: fragment of %d, want %d", tc.size, tc.count, m.u32(32), want)
			}
			left -= int64(m.u32(32))
		}
	}
}

func TestNFCMemory(t *testing.T) {
	l := nfcLab(t, NFC{Memory: 8 << 20})
	one, two := openWeb01(t, l, 1<<20, 4), openWeb01(t, l, 1<<20, 4)
	var refused *nfcError
	if _, err := openNFC(t, l, "web01", nfcPath, false, 1<<20, 1); !errors.As(err, &refused) || refused.code != 5 || !strings.Contains(refused.text, "1048576") {
		t.Errorf("a third session: %v", err)
	}
	one.closeSession()
	openWeb01(t, l, 1<<20, 4).closeSession()
	if got := l.Stats().NFC; got.MemoryPeak != 8<<20 || got.SessionsPeak != 2 || got.SessionsOpen != 1 {
		t.Errorf("%+v", got)
	}
	two.closeSession()

	if err := l.SetNFC(NFC{Memory: 1 << 20, Exhausted: nfchost.RefuseRead}); err != nil {
		t.Fatal(err)
	}
	f := openWeb01(t, l, 1<<20, 4)
	if _, err := f.readAt(0, 1<<20, 0); !errors.As(err, &refused) || refused.code != 5 || !strings.Contains(refused.text, "1048600") {
		t.Errorf("a read larger than the memory: %v", err)
	}
	if _, err := f.readAt(0, 512<<10, 0); err != nil {
		t.Errorf("half of the memory: %v", err)
	}
	f.closeSession()
}

func TestNFCSessionsWaitForMemory(t *testing.T) {
	l := nfcLab(t, NFC{Memory: 4 << 20, Exhausted: nfchost.Queue})
	one := openWeb01(t, l, 1<<20, 4)
	c := dialNFC(t, nfcTicketOf(t, l, "web01"), false)
	c.runHandshake(true, "0b000000")
	c.sendRequest(2, wordBytes(0, 1<<20, 4, 0), "")
	_ = c.raw.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := c.readReply(); err == nil {
		t.Error("a session was opened beyond the memory")
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(nfcTimeout))
	one.closeSession()
	if _, err := c.readReply(); err != nil {
		t.Errorf("after memory was released: %v", err)
	}
}

// Hold detects a client that does not send several reads before the first reply.
func TestNFCHoldDetectsPipelining(t *testing.T) {
	l := nfcLab(t, NFC{Hold: 4, HoldFor: Duration(nfcTimeout)})
	want := diskBytes(t, l)
	f := openWeb01(t, l, 0, 0)
	reads, order := map[uint32][2]int64{}, []uint32{}
	for i := range int64(4) {
		id := f.requestRead(i*4096, 4096, 0)
		reads[id], order = [2]int64{i * 4096, 4096}, append([]uint32{id}, order...)
	}
	for _, id := range order { // newest first
		got, err := f.collectReads(map[uint32][2]int64{id: reads[id]})
		if err != nil || !bytes.Equal(got[id], want[reads[id][0]:reads[id][0]+4096]) {
			t.Fatalf("read %d: %v", id, err)
		}
	}
	if err := l.SetNFC(NFC{Hold: 4, HoldFor: Duration(time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	f = openWeb01(t, l, 0, 0)
	if _, err := f.readAt(0, 4096, 0); err != nil { // only one pending read: HoldFor ends
		t.Fatal(err)
	}
	if got := l.Stats().NFC; got.HoldsMet != 1 || got.HoldsMissed != 1 || got.DepthPeak != 4 {
		t.Errorf("%+v", got)
	}
}

// queryMap requests the map of n chunks from start, with the start in the correct field.
func (f *nfcFile) queryMap(start, chunk, n int64) ([]byte, error) {
	f.t.Helper()
	m, err := f.call(13, longBytes(f.handle, 0, uint64(chunk), uint64(start), uint64(n), 0), "")
	if err != nil {
		return nil, err
	}
	if len(m.payload) != 48 || int64(m.u64(32)) != n {
		f.t.Fatalf("map reply %x", m.payload)
	}
	return m.data, nil
}

func TestNFCAllocatedBlocks(t *testing.T) {
	const chunk = 64 << 10
	l := startLab(t, Config{NFC: NFC{DirtyTail: true}, VMs: []VM{trackedVM()}})
	want := expectedAreas(t, l, chunk)
	f := openWeb01(t, l, 0, 0)
	inMap := func(off int64) bool {
		for _, a := range want {
			if off >= a.Start && off < a.Start+a.Length {
				return true
			}
		}
		return false
	}
	for _, tc := range [][2]int64{{0, 80 << 20 / chunk}, {0, 16}, {16 << 20, 40}, {80<<20 - chunk, 1}} {
		bitmap, err := f.queryMap(tc[0], chunk, tc[1])
		if err != nil || len(bitmap)%4 != 0 || int64(len(bitmap)) < tc[1]/8 || int64(len(bitmap)) > tc[1]/8+4 {
			t.Fatalf("%v: %d bytes %v", tc, len(bitmap), err)
		}
		for i := range int64(len(bitmap)) * 8 {
			set := bitmap[i/8]>>(i%8)&1 == 1
			if wanted := i >= tc[1] || inMap(tc[0]+i*chunk); set != wanted {
				t.Errorf("%v: chunk %d is %v", tc, i, set)
			}
		}
	}
	// With the start at offset 8 instead of 24, the map contains zeros, without an error.
	m, err := f.call(13, longBytes(f.handle, 16<<20, chunk, 0, 16, 0), "")
	if err != nil || m.data[0] != 0 || m.data[1] != 0 {
		t.Errorf("start in the wrong place: %+v %v", m, err)
	}
	for name, q := range map[string][3]int64{
		"unaligned start": {512, chunk, 1}, "small chunk": {0, 512, 1}, "no chunks": {0, chunk, 0},
		"past the end": {80 << 20, chunk, 1}, "over the end": {0, chunk, 80<<20/chunk + 1}, "too many": {0, chunk, 512<<10 + 1},
	} {
		var refused *nfcError
		if _, err := f.queryMap(q[0], q[1], q[2]); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := l.HideFromMap("web01", 0, Span{Offset: 0, Length: 80 << 20}); err != nil {
		t.Fatal(err)
	}
	if bitmap, err := f.queryMap(0, chunk, 32); err != nil || !bytes.Equal(bitmap, make([]byte, 4)) {
		t.Errorf("a map with hidden data: %x %v", bitmap, err)
	}
}

func TestNFCFaults(t *testing.T) {
	const n = 256 << 10
	for kind, want := range map[FaultKind]string{
		FaultNFCError: "ERROR 5 no", FaultNFCStatus: "status 5", FaultNFCCut: "reset", FaultNFCMagic: "magic", FaultNFCOpID: "message 7",
		FaultNFCRange: "fragment", FaultNFCOverlap: "", FaultNFCEmpty: "fragment 0+0", FaultNFCLength: "bytes for", FaultNFCHuge: "trailer of",
		FaultNFCSum: "checksum", FaultNFCRun: "run", FaultNFCFalling: "run", FaultNFCMatch: "match", FaultNFCFlip: "",
	} {
		l := nfcLab(t, NFC{})
		f := openWeb01(t, l, 0, 0)
		if _, err := l.Faults().Add(Fault{Kind: kind, Code: 5, Text: "no", Count: 1, Path: "web01.vmdk"}); err != nil {
			t.Fatal(err)
		}
		packing := map[FaultKind]uint32{FaultNFCSum: 1, FaultNFCMatch: 2, FaultNFCRun: 3, FaultNFCFalling: 3}[kind]
		got, err := f.readAt(0, n, packing)
		switch same := bytes.Equal(got, diskBytes(t, l)[:n]); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", kind, err)
		case kind == FaultNFCFlip && same:
			t.Errorf("%s: the data is not altered", kind)
		}
		if left := l.Faults().List(); len(left) != 0 {
			t.Errorf("%s: the fault was not injected", kind)
		}
	}
}

func TestNFCFaultAtAnOffset(t *testing.T) {
	l := nfcLab(t, NFC{})
	want := diskBytes(t, l)
	f := openWeb01(t, l, 0, 0)
	if _, err := l.Faults().Add(Fault{Kind: FaultNFCCut, At: 3<<20 + 100_000}); err != nil {
		t.Fatal(err)
	}
	for off := int64(0); off < 3<<20; off += 1 << 20 {
		if got, err := f.readAt(off, 1<<20, 0); err != nil || !bytes.Equal(got, want[off:off+1<<20]) {
			t.Fatalf("at %d: %v", off, err)
		}
	}
	if _, err := f.readAt(3<<20, 1<<20, 0); err == nil {
		t.Error("the connection was not cut")
	}
	l.Faults().Clear()
	if _, err := l.Faults().Add(Fault{Kind: FaultNFCStall, At: 70_000}); err != nil {
		t.Fatal(err)
	}
	f = openWeb01(t, l, 0, 0)
	l.ResetStats()
	var wg sync.WaitGroup
	wg.Go(func() {
		if got, err := f.readAt(0, 1<<20, 0); err != nil || !bytes.Equal(got, want[:1<<20]) {
			t.Errorf("after a stall: %v", err)
		}
	})
	for range 2000 { // until the fragment before the stall is sent
		if l.Stats().NFC.ReadBytes >= 64<<10 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	l.Faults().Clear()
	wg.Wait()
}

func TestNFCFaultsOfOpening(t *testing.T) {
	l := nfcLab(t, NFC{})
	add := func(f Fault) {
		t.Helper()
		f.Count = 1
		if _, err := l.Faults().Add(f); err != nil {
			t.Fatal(err)
		}
	}
	c := login(t, l)
	vm := allVMs(t, c.Client)["web01"].Self
	add(Fault{Kind: FaultNFCTicket})
	if _, err := nfcTicketFor(c.Client, vm); !fault.Is(err, &types.NoPermission{}) {
		t.Errorf("no ticket: %v", err)
	}
	add(Fault{Kind: FaultNFCThumbprint})
	if _, err := loginNFC(t, nfcTicketOf(t, l, "web01"), true); !errors.Is(err, errThumbprint) {
		t.Errorf("thumbprint: %v", err)
	}
	add(Fault{Kind: FaultNFCOtherCert})
	if _, err := loginNFC(t, nfcTicketOf(t, l, "web01"), true); !errors.Is(err, errThumbprint) {
		t.Errorf("second certificate: %v", err)
	}
	add(Fault{Kind: FaultNFCRefuse, Method: nfchost.OpSession})
	if _, err := loginNFC(t, nfcTicketOf(t, l, "web01"), true); err == nil || !strings.Contains(err.Error(), "530") {
		t.Errorf("ticket refused: %v", err)
	}
	add(Fault{Kind: FaultNFCRefuse})
	nfc := dialNFC(t, nfcTicketOf(t, l, "web01"), true)
	nfc.expect("04000000 +260 x 00")
	for _, op := range []string{nfchost.OpOpenSession, nfchost.OpOpenFile} {
		add(Fault{Kind: FaultNFCError, Method: op, Code: 5, Text: "no"})
		var refused *nfcError
		if _, err := openNFC(t, l, "web01", nfcPath, true, 0, 0); !errors.As(err, &refused) || refused.text != "no" {
			t.Errorf("%s: %v", op, err)
		}
	}
	add(Fault{Kind: FaultNFCStatus, Method: nfchost.OpOpenFile, Code: 7})
	if _, err := openNFC(t, l, "web01", nfcPath, true, 0, 0); err == nil || err.Error() != "open status 7" {
		t.Errorf("status: %v", err)
	}
}

// NFC and /folder cannot read a disk at the same time.
func TestNFCLocksTheDisk(t *testing.T) {
	l := nfcLab(t, NFC{})
	f := openWeb01(t, l, 0, 0)
	if got := fetchStatus(t, newClient(t, l), folderRequest(t, l, "GET", folderURL(l, flat), "Range", "bytes=0-9")); got != 500 {
		t.Errorf("/folder while the disk is open over NFC: %d", got)
	}
	f.closeSession()
	if got := fetchStatus(t, newClient(t, l), folderRequest(t, l, "GET", folderURL(l, flat), "Range", "bytes=0-9")); got != 206 {
		t.Errorf("/folder afterwards: %d", got)
	}
	if _, err := l.Faults().Add(Fault{Kind: FaultStall, At: 10}); err != nil {
		t.Fatal(err)
	}
	resp, err := newClient(t, l).Do(folderRequest(t, l, "GET", folderURL(l, flat)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if _, err := openNFC(t, l, "web01", nfcPath, false, 0, 0); err == nil || !strings.Contains(err.Error(), "16392") {
		t.Errorf("NFC while /folder sends the disk: %v", err)
	}
}

func TestNFCRates(t *testing.T) {
	l := startLab(t, Config{NFC: NFC{SessionRate: 20 << 20}, VMs: []VM{{Name: "web01", Disks: []Disk{{Capacity: 8 << 20, Fill: 100, Seed: 1}}}}})
	f := openWeb01(t, l, 0, 0)
	began := time.Now()
	if _, err := f.readAt(0, 8<<20, 0); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 300*time.Millisecond { // 0.4 s less the burst
		t.Errorf("8 MiB in %v under 20 MiB/s", took)
	}
	if err := l.SetNFC(NFC{LinkRate: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	if _, err := f.readAt(0, 512<<10, 3); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("half a MiB in %v on a link of 1 MiB/s", took)
	}
}

func TestNFCOutage(t *testing.T) {
	l := nfcLab(t, NFC{})
	f := openWeb01(t, l, 0, 0)
	l.DropNFC()
	if _, err := f.readAt(0, 512, 0); err == nil {
		t.Error("a dropped connection still works")
	}
	f = openWeb01(t, l, 0, 0)
	addr := l.NFCAddr("")
	if err := l.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.readAt(0, 512, 0); err == nil {
		t.Error("a connection still works after a restart")
	}
	if l.NFCAddr("") != addr {
		t.Errorf("address %s after a restart, want %s", l.NFCAddr(""), addr)
	}
	openWeb01(t, l, 0, 0).closeSession()
	if got := l.Stats().NFC.SessionsOpen; got != 0 {
		t.Errorf("%d sessions open", got)
	}
}

func TestDisabledNFCRefusesLogin(t *testing.T) {
	l := nfcLab(t, NFC{Off: true})
	if _, err := loginNFC(t, nfcTicketOf(t, l, "web01"), true); err == nil {
		t.Error("the login succeeded")
	}
}

// A session continues after its VM moved to another host. A later ticket is for the new host.
func TestNFCSessionContinuesAfterAMove(t *testing.T) {
	vm := web01()
	vm.PoweredOn, vm.Snapshots = true, []string{"s1"}
	l := startLab(t, Config{VCenter: true, VMs: []VM{vm}})
	before := nfcTicketOf(t, l, "web01")
	c := dialNFC(t, before, true)
	c.runHandshake(true, "0b000000")
	f, err := c.openFile(0, 0, nfcPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.MoveVM("web01", "esx2.lab"); err != nil {
		t.Fatal(err)
	}
	if got, err := f.readAt(0, 1<<20, 3); err != nil || !bytes.Equal(got, diskBytes(t, l)[:1<<20]) {
		t.Errorf("after the move: %v", err)
	}
	if after := nfcTicketOf(t, l, "web01"); after.Port == before.Port {
		t.Error("the ticket is still for the previous host")
	}
	if err := l.MoveVM("web01", "esx9"); err == nil {
		t.Error("moved to an unknown host")
	}
}

func TestNFCBackupNetwork(t *testing.T) {
	const ip = "127.0.0.2"
	if ln, err := net.Listen("tcp", ip+":0"); err != nil {
		t.Skipf("no second loopback address: %v", err)
	} else {
		ln.Close()
	}
	l := startLab(t, Config{VCenter: true, NFC: NFC{Network: ip}, VMs: []VM{web01()}})
	if ticket := nfcTicketOf(t, l, "web01"); ticket.Host != ip {
		t.Errorf("ticket for %s", ticket.Host)
	}
	c := login(t, l)
	host, err := find.NewFinder(c.Client).HostSystem(t.Context(), "/Lab/DC1/host/esx1.lab")
	if err != nil {
		t.Fatal(err)
	}
	ips, err := host.ConfigManager().VirtualNicManager(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	info, err := ips.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	for _, n := range info.NetConfig {
		if n.NicType == "vSphereBackupNFC" && len(n.SelectedVnic) == 1 && n.CandidateVnic[0].Key == n.SelectedVnic[0] {
			found = n.CandidateVnic[0].Spec.Ip.IpAddress
		}
	}
	if found != ip {
		t.Errorf("the tagged NIC has address %q", found)
	}
}
