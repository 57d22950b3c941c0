package vsphere

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"
)

// withFault runs a GET of bytes 4096 to 1 MiB with one fault.
func withFault(t *testing.T, f Fault) (status int, contentRange string, got, want []byte, err error) {
	t.Helper()
	l := startLab(t, Config{VMs: []VM{web01()}, Faults: []Fault{f}})
	resp, got, err := fetch(t, newClient(t, l), folderRequest(t, l, "GET", folderURL(l, flat), "Range", "bytes=4096-1048575"))
	want = diskBytes(t, l)
	if resp != nil {
		status, contentRange = resp.StatusCode, resp.Header.Get("Content-Range")
	}
	return status, contentRange, got, want, err
}

func TestFaultStatus(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	c := newClient(t, l)
	if _, err := l.Faults().Add(Fault{Kind: FaultStatus, Path: "-flat", Skip: 1, Count: 2}); err != nil {
		t.Fatal(err)
	}
	var got []int
	for range 5 {
		got = append(got, fetchStatus(t, c, folderRequest(t, l, "HEAD", folderURL(l, flat))))
		if s := fetchStatus(t, c, folderRequest(t, l, "HEAD", folderURL(l, "web01/web01.vmdk"))); s != 200 {
			t.Errorf("another path: %d", s)
		}
	}
	if want := []int{200, 503, 503, 200, 200}; !equal(got, want) {
		t.Errorf("status %v, want %v", got, want)
	}
	id, err := l.Faults().Add(Fault{Kind: FaultStatus, Status: 500, Probability: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]int{}
	for range 60 {
		seen[fetchStatus(t, c, folderRequest(t, l, "HEAD", folderURL(l, flat)))]++
	}
	if seen[200] == 0 || seen[500] == 0 {
		t.Errorf("half of 60 should fail: %v", seen)
	}
	l.Faults().Remove(id)
	if s := fetchStatus(t, c, folderRequest(t, l, "HEAD", folderURL(l, flat))); s != 200 || len(l.Faults().List()) != 0 {
		t.Errorf("after removal: %d, %v", s, l.Faults().List())
	}
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestFaultReset(t *testing.T) {
	status, _, got, want, err := withFault(t, Fault{Kind: FaultReset, At: 300_000})
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%d bytes, error %v; want a reset", len(got), err)
	}
	if status != 206 || !bytes.HasPrefix(want[4096:], got) {
		t.Errorf("status %d, %d bytes before the reset", status, len(got))
	}
	if status, _, _, _, err = withFault(t, Fault{Kind: FaultReset}); err == nil {
		t.Errorf("reset at byte 0: status %d and a complete body", status)
	}
}

func TestFaultShort(t *testing.T) {
	status, _, got, want, err := withFault(t, Fault{Kind: FaultShort, At: 300_000})
	if status != 206 || !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.Equal(got, want[4096:304096]) {
		t.Errorf("status %d, %d bytes, %v", status, len(got), err)
	}
}

func TestFaultShortLength(t *testing.T) {
	status, cr, got, want, err := withFault(t, Fault{Kind: FaultShortLength, At: 300_000})
	if status != 206 || err != nil || cr != "bytes 4096-1048575/8388608" || !bytes.Equal(got, want[4096:304096]) {
		t.Errorf("status %d, %d bytes, %q, %v", status, len(got), cr, err)
	}
}

func TestFaultWrongRange(t *testing.T) {
	status, cr, got, want, err := withFault(t, Fault{Kind: FaultWrongRange, At: 512})
	if status != 206 || err != nil || cr != "bytes 4608-1049087/8388608" || !bytes.Equal(got, want[4096:1048576]) {
		t.Errorf("status %d, %d bytes, %q, %v", status, len(got), cr, err)
	}
}

func TestFaultOtherBytes(t *testing.T) {
	status, cr, got, want, err := withFault(t, Fault{Kind: FaultOtherBytes, At: 4096})
	if status != 206 || err != nil || cr != "bytes 4096-1048575/8388608" || !bytes.Equal(got, want[8192:1052672]) {
		t.Errorf("status %d, %d bytes, %q, %v", status, len(got), cr, err)
	}
}

func TestFaultIgnoreRange(t *testing.T) {
	status, cr, got, want, err := withFault(t, Fault{Kind: FaultIgnoreRange})
	if status != 200 || err != nil || cr != "" || !bytes.Equal(got, want) {
		t.Errorf("status %d, %d bytes, %q, %v", status, len(got), cr, err)
	}
}

func TestFaultFlip(t *testing.T) {
	_, _, got, want, err := withFault(t, Fault{Kind: FaultFlip, At: 300_001})
	want[4096+300_001] ^= 1
	if err != nil || !bytes.Equal(got, want[4096:1048576]) {
		t.Errorf("%d bytes, %v: not exactly one bit differs", len(got), err)
	}
}

// The fault affects and counts only requests that read the byte.
func TestFaultReadFlip(t *testing.T) {
	_, _, got, want, err := withFault(t, Fault{Kind: FaultReadFlip, At: 300_001})
	want[300_001] ^= 1
	if err != nil || !bytes.Equal(got, want[4096:1048576]) {
		t.Errorf("%d bytes, %v: not exactly one bit differs", len(got), err)
	}
	_, _, got, want, err = withFault(t, Fault{Kind: FaultReadFlip, At: 1 << 20, Count: 1})
	if err != nil || !bytes.Equal(got, want[4096:1048576]) {
		t.Errorf("%d bytes, %v: a request that ends before the byte is affected", len(got), err)
	}
}

func TestFaultSlow(t *testing.T) {
	begin := time.Now()
	status, _, _, _, err := withFault(t, Fault{Kind: FaultSlow, Delay: Duration(80 * time.Millisecond)})
	if status != 206 || err != nil || time.Since(begin) < 80*time.Millisecond {
		t.Errorf("status %d after %v, %v", status, time.Since(begin), err)
	}
}

func TestFaultStallUntilReleased(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}, Faults: []Fault{{Kind: FaultStall, At: 100_000}}})
	resp, err := newClient(t, l).Do(folderRequest(t, l, "GET", folderURL(l, flat)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 100_000)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatal(err)
	}
	if sent := l.Stats().BodyBytes; sent != 100_000 {
		t.Errorf("%d bytes sent before the release", sent)
	}
	l.Faults().Clear()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(append(first, rest...), diskBytes(t, l)) {
		t.Errorf("after the release: %d bytes, %v", len(rest), err)
	}
}

func TestCloseEndsAStall(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}, Faults: []Fault{{Kind: FaultStall}}})
	done := make(chan error, 1)
	go func() {
		_, _, err := fetch(t, newClient(t, l), folderRequest(t, l, "GET", folderURL(l, flat)))
		done <- err
	}()
	for l.Stats().Requests == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("the stalled request succeeded")
	}
}

func TestInvalidFaults(t *testing.T) {
	for _, f := range []Fault{{}, {Kind: "fire"}, {Kind: FaultStatus, Status: 200}, {Kind: FaultReset, At: -1}, {Kind: FaultSlow, Probability: 2}} {
		if _, err := newFaults(nil).Add(f); err == nil || !strings.HasPrefix(err.Error(), "fault ") {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
