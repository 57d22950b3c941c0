package vsphere

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"
)

func TestBucketLimitsTheRate(t *testing.T) {
	now := time.Now()
	b := newBucket(1 << 20) // 1 MiB/s
	var waited time.Duration
	for range 64 { // 4 MiB in pieces
		w := b.reserveBytes(64<<10, now)
		waited += w
		now = now.Add(w)
	}
	// The first burst is free, and the last piece is sent without waiting for it to drain.
	want := 4*time.Second - burst - time.Second/16
	if d := waited - want; d < -time.Millisecond || d > time.Millisecond {
		t.Errorf("4 MiB took %v, want %v", waited, want)
	}
	now = now.Add(time.Hour)
	if w := b.reserveBytes(1<<20, now); w != 0 {
		t.Errorf("after an idle hour: wait %v", w)
	}
	if w := b.reserveBytes(1, now); w < 900*time.Millisecond {
		t.Errorf("the idle hour was credited: wait %v", w)
	}
}

func TestBucketIsShared(t *testing.T) {
	now := time.Now()
	b := newBucket(100 << 20)
	sent := map[string]int{}
	at := map[string]time.Time{"a": now, "b": now, "c": now}
	for range 3000 {
		who := "a"
		for name, when := range at {
			if when.Before(at[who]) {
				who = name
			}
		}
		at[who] = at[who].Add(b.reserveBytes(64<<10, at[who]) + time.Microsecond)
		sent[who] += 64 << 10
	}
	for who, n := range sent {
		if share := float64(n) / (3000 * 64 << 10); share < 0.3 || share > 0.37 {
			t.Errorf("%s got %.2f of the total", who, share)
		}
	}
}

func TestLimitsSlowATransfer(t *testing.T) {
	for _, limits := range []Limits{{ConnRate: 64 << 20}, {DatastoreRate: 64 << 20}} {
		l := startLab(t, Config{Limits: limits, VMs: []VM{web01()}})
		begin := time.Now()
		if _, data, err := fetch(t, newClient(t, l), folderRequest(t, l, "GET", folderURL(l, flat))); err != nil || len(data) != 8<<20 {
			t.Fatal(err)
		}
		if d := time.Since(begin); d < 95*time.Millisecond { // 125 ms less the burst
			t.Errorf("%+v: 8 MiB at 64 MiB/s in %v", limits, d)
		}
		l.SetLimits(Limits{})
	}
}

func TestTooManyRequestsAreBusy(t *testing.T) {
	l := startLab(t, Config{Limits: Limits{MaxRequests: 1}, VMs: []VM{web01()}, Faults: []Fault{{Kind: FaultStall, Count: 1}}})
	c := newClient(t, l)
	stalled, err := c.Do(folderRequest(t, l, "GET", folderURL(l, flat)))
	if err != nil {
		t.Fatal(err)
	}
	if got := fetchStatus(t, c, folderRequest(t, l, "GET", folderURL(l, flat))); got != 503 {
		t.Errorf("second request: %d", got)
	}
	l.Faults().Release()
	if _, err := io.Copy(io.Discard, stalled.Body); err != nil {
		t.Error(err)
	}
	stalled.Body.Close()
	for end := time.Now().Add(maxWait); time.Now().Before(end); { // the slot is free when the first handler has returned
		if fetchStatus(t, c, folderRequest(t, l, "HEAD", folderURL(l, flat))) == 200 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("the slot was not released")
}

func TestTooManyConnectionsAreReset(t *testing.T) {
	l := startLab(t, Config{Limits: Limits{MaxConns: 2}, VMs: []VM{web01()}})
	dial := func() (*tls.Conn, error) { return tls.Dial("tcp", l.Addr(), &tls.Config{InsecureSkipVerify: true}) }
	first, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	second, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if c, err := dial(); err == nil {
		c.Close()
		t.Error("a third connection was accepted")
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(maxWait); time.Now().Before(end); { // the server detects the close later
		if c, err := dial(); err == nil {
			c.Close()
			break
		}
		time.Sleep(time.Millisecond)
	}
	if s := l.Stats(); s.ConnsRefused == 0 || s.Conns < 3 || s.ConnsPeak != 2 {
		t.Errorf("accepted %d, refused %d, peak %d", s.Conns, s.ConnsRefused, s.ConnsPeak)
	}
}

func TestLatency(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	l.SetLimits(Limits{Latency: Duration(60 * time.Millisecond)})
	begin := time.Now()
	if got := fetchStatus(t, newClient(t, l), folderRequest(t, l, "HEAD", folderURL(l, flat))); got != 200 || time.Since(begin) < 60*time.Millisecond {
		t.Errorf("%d after %v", got, time.Since(begin))
	}
}

func TestCertificateChange(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	c := newClient(t, l)
	cookie := basicLogin(t, l, c)
	before, addr := l.Fingerprint(), l.Addr()
	if err := l.ChangeCertificate(); err != nil {
		t.Fatal(err)
	}
	if l.Fingerprint() == before || l.Addr() != addr {
		t.Errorf("fingerprint %s, address %s", l.Fingerprint(), l.Addr())
	}
	if got := statusOnNewConn(t, c, func() *http.Request { return withCookie(t, l, cookie) }); got != 200 {
		t.Errorf("the new certificate is served with %d", got) // the client checks the fingerprint
	}
}

// statusOnNewConn returns the status of a request on a new connection, since the lab may have
// closed the idle ones.
func statusOnNewConn(t *testing.T, c *http.Client, r func() *http.Request) int {
	t.Helper()
	c.CloseIdleConnections()
	return fetchStatus(t, c, r())
}

func TestRestart(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	c := newClient(t, l)
	cookie := basicLogin(t, l, c)
	fingerprint, addr := l.Fingerprint(), l.Addr()
	if err := l.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(withCookie(t, l, cookie)); err == nil {
		t.Error("a stopped lab answers")
	}
	if err := l.Resume(); err != nil {
		t.Fatal(err)
	}
	if l.Fingerprint() != fingerprint || l.Addr() != addr {
		t.Error("another address or certificate after the restart")
	}
	if got := statusOnNewConn(t, c, func() *http.Request { return withCookie(t, l, cookie) }); got != 401 {
		t.Errorf("cookie from before: %d", got)
	}
	if got := fetchStatus(t, c, folderRequest(t, l, "HEAD", folderURL(l, flat))); got != 200 {
		t.Errorf("new login: %d", got)
	}
	if err := l.Restart(); err != nil {
		t.Error(err)
	}
}

func TestRestartBreaksTransfers(t *testing.T) {
	l := startLab(t, Config{Limits: Limits{ConnRate: 1 << 20}, VMs: []VM{web01()}})
	resp, err := newClient(t, l).Do(folderRequest(t, l, "GET", folderURL(l, flat)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := l.Restart(); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the body of %d bytes was complete after the restart", n)
	}
}

func TestStatsCountRequests(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	c := newClient(t, l)
	fetch(t, c, folderRequest(t, l, "GET", folderURL(l, flat), "Range", "bytes=0-999"))
	fetch(t, c, folderRequest(t, l, "HEAD", folderURL(l, flat)))
	fetch(t, c, folderRequest(t, l, "PUT", folderURL(l, flat)))
	login(t, l)
	s := l.Stats()
	p := s.Paths["/folder/"+flat]
	if s.BodyBytes != 1000 || p.Bytes != 1000 || p.Methods["GET"] != 1 || p.Methods["HEAD"] != 1 || p.Methods["PUT"] != 1 {
		t.Errorf("%+v", s)
	}
	if s.SOAP["Login"] < 1 || s.SOAP["RetrieveServiceContent"] != 1 || s.Status[206] != 1 || s.Status[405] != 1 {
		t.Errorf("%+v", s)
	}
	l.ResetStats()
	if s := l.Stats(); s.Requests != 0 || s.BodyBytes != 0 || len(s.SOAP) != 0 || len(s.Paths) != 0 {
		t.Errorf("after the reset: %+v", s)
	}
}
