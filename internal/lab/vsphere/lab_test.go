package vsphere

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/vim25/soap"
)

// start runs a lab for one test and checks at its end that nothing of it is left.
func start(t *testing.T, cfg Config) *Lab {
	t.Helper()
	before := runtime.NumGoroutine()
	l, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close lab: %v", err)
		}
		if n := l.buffers.out.Load(); n != 0 {
			t.Errorf("%d buffers are still out", n)
		}
		noGoroutinesLeft(t, before)
	})
	return l
}

// waitMost is how long anything may take that comes by itself, on a busy machine.
const waitMost = time.Minute

// noGoroutinesLeft waits a moment for goroutines that are about to end: the standard
// library closes idle client connections in the background.
func noGoroutinesLeft(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(waitMost); time.Now().Before(end); {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	buf := make([]byte, 1<<20)
	t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
}

// web01 is a small VM with one generated disk.
func web01() VM {
	return VM{Name: "web01", Disks: []Disk{{Capacity: 8 << 20, Fill: 40, Seed: 1}}, NICs: []NIC{{}}}
}

// client is an HTTP client that trusts the lab's certificate by its fingerprint alone.
func client(t testing.TB, l *Lab) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		sum := sha256.Sum256(s.PeerCertificates[0].Raw)
		if got := strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":"); got != l.Fingerprint() {
			return fmt.Errorf("certificate %s, the lab says %s", got, l.Fingerprint())
		}
		return nil
	}}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// login opens a SOAP session.
func login(t testing.TB, l *Lab) *govmomi.Client {
	t.Helper()
	u, err := soap.ParseURL(l.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(l.User(), l.Password())
	c, err := govmomi.NewClient(context.Background(), u, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.CloseIdleConnections()
	})
	return c
}

// folderURL is the address of a file on the first datastore of an ESXi.
func folderURL(l *Lab, path string) string {
	u := url.URL{Scheme: "https", Host: l.Addr(), Path: "/folder/" + path, RawQuery: url.Values{"dcPath": {"ha-datacenter"}, "dsName": {"datastore1"}}.Encode()}
	return u.String()
}

// request makes a /folder request with a password; header is name, value, name, value...
func request(t testing.TB, l *Lab, method, rawURL string, header ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, rawURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(l.User(), l.Password())
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// fetch returns the reply with its whole body, and the error of reading the body.
func fetch(t *testing.T, c *http.Client, r *http.Request) (*http.Response, []byte, error) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp, data, err
}

func TestFolderServesDiskByteForByte(t *testing.T) {
	l := start(t, Config{VMs: []VM{web01()}})
	disk, err := l.Disk("web01", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, disk.Size)
	if _, err := disk.ReadAt(want, 0); err != nil {
		t.Fatal(err)
	}
	resp, got, err := fetch(t, client(t, l), request(t, l, "GET", folderURL(l, "web01/web01-flat.vmdk")))
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("GET: %v %v", resp, err)
	}
	if !bytes.Equal(got, want) {
		t.Error("body differs from the disk")
	}
}
