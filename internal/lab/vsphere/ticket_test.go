package vsphere

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"testing"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
)

// startVCenter starts a vCenter whose hosts have listeners. It returns the first datastore, and a
// context that selects the first host.
func startVCenter(t *testing.T) (*Lab, *object.Datastore, context.Context) {
	t.Helper()
	l := startLab(t, Config{VCenter: true, HostListeners: true, VMs: []VM{web01()}})
	c := login(t, l)
	finder := find.NewFinder(c.Client)
	dc, err := finder.Datacenter(t.Context(), "/Lab/DC1")
	if err != nil {
		t.Fatal(err)
	}
	finder.SetDatacenter(dc)
	ds, err := finder.Datastore(t.Context(), "datastore1")
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := ds.AttachedHosts(t.Context())
	if err != nil || len(hosts) != 2 {
		t.Fatalf("hosts %v: %v", hosts, err)
	}
	return l, ds, ds.HostContext(t.Context(), hosts[0])
}

func TestServiceTicketIsValidOnce(t *testing.T) {
	l, ds, ctx := startVCenter(t)
	u, cookie, err := ds.ServiceTicket(ctx, flat, "GET")
	if err != nil {
		t.Fatal(err)
	}
	if u.Host != l.HostAddr("esx1.lab") && u.Host != l.HostAddr("esx2.lab") || cookie.Name != ticketCookie {
		t.Fatalf("ticket %v for %v", cookie, u)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	get := func(method string) (int, []byte) {
		r, err := http.NewRequest(method, u.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.AddCookie(cookie)
		resp, data, err := fetch(t, &http.Client{Transport: tr}, r)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, data
	}
	if got, data := get("GET"); got != 200 || !bytes.Equal(data, diskBytes(t, l)) {
		t.Errorf("first use: %d, %d bytes", got, len(data))
	}
	if got, _ := get("GET"); got != 401 {
		t.Errorf("second use: %d", got)
	}
	_, cookie, err = ds.ServiceTicket(ctx, flat, "GET")
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := get("HEAD"); got != 401 {
		t.Errorf("another method: %d", got)
	}
	_, cookie, err = ds.ServiceTicket(ctx, "web01/web01.vmdk", "GET")
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := get("GET"); got != 401 {
		t.Errorf("another path: %d", got)
	}
}

// govmomi downloads from the host with a ticket if the context selects the host.
func TestGovmomiDownloadsFromTheHost(t *testing.T) {
	l, ds, ctx := startVCenter(t)
	body, _, err := ds.Download(ctx, flat, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	if err != nil || !bytes.Equal(got, diskBytes(t, l)) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
}
