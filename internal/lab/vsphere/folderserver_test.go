package vsphere

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

const flat = "web01/web01-flat.vmdk"

// diskBytes returns the content of the first disk of web01.
func diskBytes(t *testing.T, l *Lab) []byte {
	t.Helper()
	disk, err := l.Disk("web01", 0)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, disk.Size)
	if _, err := disk.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRanges(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	want := diskBytes(t, l)
	size := int64(len(want))
	c := newClient(t, l)
	for _, tc := range []struct {
		header       string
		status       int
		from, to     int64
		contentRange string
	}{
		{"", 200, 0, size, ""},
		{"bytes=0-0", 206, 0, 1, "bytes 0-0/8388608"},
		{"bytes=4095-1052671", 206, 4095, 1052672, "bytes 4095-1052671/8388608"},
		{"bytes=8388600-", 206, size - 8, size, "bytes 8388600-8388607/8388608"},
		{"bytes=8388600-9999999", 206, size - 8, size, "bytes 8388600-8388607/8388608"},
		{"bytes=-512", 206, size - 512, size, "bytes 8388096-8388607/8388608"},
		{"bytes=8388608-", 416, 0, 0, "bytes */8388608"},
		{"bytes=9000000-9000001", 416, 0, 0, "bytes */8388608"},
		{"bytes=-0", 416, 0, 0, "bytes */8388608"},
		{"bytes=0-1,4-5", 200, 0, size, ""},
		{"bytes=9-3", 200, 0, size, ""},
		{"lines=1-2", 200, 0, size, ""},
	} {
		resp, got, err := fetch(t, c, folderRequest(t, l, "GET", folderURL(l, flat), "Range", tc.header))
		if err != nil {
			t.Fatalf("%q: %v", tc.header, err)
		}
		if resp.StatusCode != tc.status || resp.Header.Get("Content-Range") != tc.contentRange {
			t.Errorf("%q: %d, Content-Range %q", tc.header, resp.StatusCode, resp.Header.Get("Content-Range"))
		}
		if tc.status != 416 && !bytes.Equal(got, want[tc.from:tc.to]) {
			t.Errorf("%q: wrong content of %d bytes", tc.header, len(got))
		}
	}
}

func TestHeadersOfFiles(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	c := newClient(t, l)
	for _, file := range []string{flat, "web01/web01.vmdk", "web01/web01.vmx"} {
		for _, method := range []string{"GET", "HEAD"} {
			resp, data, err := fetch(t, c, folderRequest(t, l, method, folderURL(l, file)))
			if err != nil {
				t.Fatal(err)
			}
			h := resp.Header
			if resp.StatusCode != 200 || h.Get("Content-Type") != "application/octet-stream" || h.Get("Accept-Ranges") != "bytes" || h.Get("Last-Modified") != "" {
				t.Errorf("%s %s: %d %v", method, file, resp.StatusCode, h)
			}
			if method == "GET" && resp.ContentLength != int64(len(data)) || method == "HEAD" && len(data) != 0 {
				t.Errorf("%s %s: Content-Length %d, %d bytes", method, file, resp.ContentLength, len(data))
			}
			if file == flat && resp.ContentLength != 8<<20 {
				t.Errorf("%s %s: Content-Length %d is not the capacity", method, file, resp.ContentLength)
			}
		}
	}
}

func TestListings(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{{Name: `a "b" & <c>`, Disks: []Disk{{Capacity: 1 << 20}}}}})
	c := newClient(t, l)
	root := "https://" + l.Addr()
	for _, tc := range []struct{ url, want string }{
		{root + "/folder", `<a href="/folder?dcPath=ha-datacenter">ha-datacenter</a>`},
		{root + "/folder?dcPath=ha-datacenter", `dsName=datastore1">datastore1</a>`},
		{folderURL(l, ""), `<a href="/folder/a%20%22b%22%20&amp;%20%3Cc%3E/?dcPath`},
		{folderURL(l, `a "b" & <c>`), `a &#34;b&#34; &amp; &lt;c&gt;-flat.vmdk</a>`},
		{folderURL(l, `a "b" & <c>/`), `.vmx`},
	} {
		resp, data, err := fetch(t, c, folderRequest(t, l, "GET", tc.url))
		if err != nil || resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
			t.Errorf("%s: %v %v", tc.url, resp, err)
		}
		if !strings.Contains(string(data), tc.want) {
			t.Errorf("%s: no %s in\n%s", tc.url, tc.want, data)
		}
	}
}

func TestRefusals(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	c := newClient(t, l)
	root := "https://" + l.Addr() + "/folder/"
	for _, tc := range []struct {
		method, url string
		status      int
	}{
		{"GET", folderURL(l, "web01/none-flat.vmdk"), 404},
		{"GET", folderURL(l, "none"), 404},
		{"GET", root + flat + "?dsName=other", 404},
		{"GET", root + flat + "?dcPath=other&dsName=datastore1", 404},
		{"GET", root + flat, 404},
		{"GET", root + "web01/../web01/web01.vmdk?dsName=datastore1", 400},
		{"GET", root + "web01/%2e%2e/%2e%2e/secret?dsName=datastore1", 400},
		{"PUT", folderURL(l, flat), 405},
		{"DELETE", folderURL(l, flat), 405},
	} {
		resp, data, err := fetch(t, c, folderRequest(t, l, tc.method, tc.url))
		if err != nil || resp.StatusCode != tc.status {
			t.Errorf("%s %s: %v %v, want %d", tc.method, tc.url, resp, err, tc.status)
			continue
		}
		if !strings.Contains(string(data), "<html>") || resp.Header.Get("Content-Type") == "application/octet-stream" {
			t.Errorf("%s %s: not an HTML page: %s", tc.method, tc.url, data)
		}
	}
}

// Hosts accept dcName, which Proxmox's importer sends, and values that are encoded twice, as by virt-v2v.
func TestDatacenterAndDatastoreEncodings(t *testing.T) {
	vm := web01()
	vm.Datastore = "ssd 1+2"
	l := startLab(t, Config{Datastores: []Datastore{{Name: "ssd 1+2"}}, VMs: []VM{vm}})
	c := newClient(t, l)
	for _, query := range []string{
		"dsName=ssd%201%2B2", "dcName=ha-datacenter&dsName=ssd+1%2B2", "dcPath=/ha-datacenter&dsName=ssd%25201%252B2", "dcPath=ha%252Ddatacenter&dsName=ssd%201%2B2",
	} {
		resp, _, err := fetch(t, c, folderRequest(t, l, "HEAD", "https://"+l.Addr()+"/folder/"+flat+"?"+query))
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("%s: %v %v", query, resp, err)
		}
	}
}

func TestVCenterRequiresTheDatacenter(t *testing.T) {
	vm := web01()
	vm.Datacenter = "B/1"
	l := startLab(t, Config{
		VCenter:     true,
		Datacenters: []Datacenter{{Name: "A", Hosts: []string{"esx1"}}, {Name: "B/1", Folder: "North", Hosts: []string{"esx2"}}},
		Datastores:  []Datastore{{Name: "shared", Datacenter: "A"}, {Name: "shared", Datacenter: "B/1"}},
		VMs:         []VM{vm},
	})
	c := newClient(t, l)
	for dcPath, status := range map[string]int{"North/B%2f1": 200, "/North/B%2f1": 200, "A": 404, "B%2f1": 404, "": 404} {
		u := "https://" + l.Addr() + "/folder/" + flat + "?" + url.Values{"dcPath": {dcPath}, "dsName": {"shared"}}.Encode()
		resp, _, err := fetch(t, c, folderRequest(t, l, "HEAD", u))
		if err != nil || resp.StatusCode != status {
			t.Errorf("dcPath %q: %v %v, want %d", dcPath, resp, err, status)
		}
	}
	resp, data, err := fetch(t, c, folderRequest(t, l, "GET", "https://"+l.Addr()+"/folder"))
	if err != nil || resp.StatusCode != 200 || !strings.Contains(string(data), "dcPath=North%2FB%252f1") {
		t.Errorf("datacenters: %v %v %s", resp, err, data)
	}
}

func TestLocks(t *testing.T) {
	off := web01()
	off.Snapshots = []string{"s1"}
	base, delta := flat, "web01/web01-000001-sesparse.vmdk"
	for _, tc := range []struct {
		mode        LockMode
		on          bool
		base, delta int
	}{
		{LockAll, false, 200, 200}, {LockAll, true, 500, 500}, {LockActive, true, 200, 500}, {LockActive, false, 200, 200},
	} {
		t.Run(fmt.Sprint(tc.mode, tc.on), func(t *testing.T) {
			vm := off
			vm.PoweredOn = tc.on
			l := startLab(t, Config{Locks: tc.mode, VMs: []VM{vm}})
			c := newClient(t, l)
			for file, status := range map[string]int{base: tc.base, delta: tc.delta, "web01/web01.vmdk": 200} {
				for _, method := range []string{"GET", "HEAD"} {
					resp, data, err := fetch(t, c, folderRequest(t, l, method, folderURL(l, file)))
					if err != nil || resp.StatusCode != status {
						t.Errorf("%s %s: %v %v, want %d", method, file, resp, err, status)
					}
					if status == 500 && method == "GET" && !bytes.Contains(data, []byte("<html>")) {
						t.Errorf("%s: no HTML page: %s", file, data)
					}
				}
			}
		})
	}
}

func TestSnapshotAtRunTimeFreezesTheBaseOfOldHosts(t *testing.T) {
	for mode, want := range map[LockMode][2]int{LockAll: {500, 500}, LockActive: {500, 200}} {
		l := startLab(t, Config{Locks: mode, VMs: []VM{runningVM(Guest{})}})
		sdk, c := login(t, l), newClient(t, l)
		before := fetchStatus(t, c, folderRequest(t, l, "HEAD", folderURL(l, flat)))
		createSnapshot(t, sdk.Client, allVMs(t, sdk.Client)["web01"].Self)
		if after := fetchStatus(t, c, folderRequest(t, l, "HEAD", folderURL(l, flat))); before != want[0] || after != want[1] {
			t.Errorf("%s: %d before, %d after; want %v", mode, before, after, want)
		}
	}
}

func TestHTTP2IsOptional(t *testing.T) {
	for _, on := range []bool{false, true} {
		l := startLab(t, Config{HTTP2: on, VMs: []VM{web01()}})
		c := newClient(t, l)
		c.Transport.(*http.Transport).ForceAttemptHTTP2 = true
		resp, data, err := fetch(t, c, folderRequest(t, l, "GET", folderURL(l, flat)))
		if err != nil || (resp.ProtoMajor == 2) != on {
			t.Fatalf("h2 %v: %v %v", on, resp, err)
		}
		if !bytes.Equal(data, diskBytes(t, l)) {
			t.Errorf("h2 %v: wrong content", on)
		}
	}
}
