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

// startLab starts a lab, and checks at the end of the test that it leaves no buffers or goroutines.
func startLab(t *testing.T, cfg Config) *Lab {
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
			t.Errorf("%d buffers are still in use", n)
		}
		checkGoroutines(t, before)
	})
	return l
}

// maxWait limits the wait for events in the background, on a busy machine.
const maxWait = time.Minute

// checkGoroutines waits until at most before goroutines run. The standard library closes
// idle client connections in the background.
func checkGoroutines(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(maxWait); time.Now().Before(end); {
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

// newClient returns an HTTP client that accepts only the lab's certificate, by its fingerprint.
func newClient(t testing.TB, l *Lab) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		sum := sha256.Sum256(s.PeerCertificates[0].Raw)
		if got := strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":"); got != l.Fingerprint() {
			return fmt.Errorf("certificate %s, want %s", got, l.Fingerprint())
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

// folderURL returns the URL of a file on the first datastore of an ESXi host.
func folderURL(l *Lab, path string) string {
	u := url.URL{Scheme: "https", Host: l.Addr(), Path: "/folder/" + path, RawQuery: url.Values{"dcPath": {"ha-datacenter"}, "dsName": {"datastore1"}}.Encode()}
	return u.String()
}

// folderRequest returns a request with a password. header contains names and values in turn.
func folderRequest(t testing.TB, l *Lab, method, rawURL string, header ...string) *http.Request {
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

// fetch sends a request and reads the whole body of the reply.
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
	l := startLab(t, Config{VMs: []VM{web01()}})
	disk, err := l.Disk("web01", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, disk.Size)
	if _, err := disk.ReadAt(want, 0); err != nil {
		t.Fatal(err)
	}
	resp, got, err := fetch(t, newClient(t, l), folderRequest(t, l, "GET", folderURL(l, "web01/web01-flat.vmdk")))
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("GET: %v %v", resp, err)
	}
	if !bytes.Equal(got, want) {
		t.Error("body differs from the disk")
	}
}
