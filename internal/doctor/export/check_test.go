package export

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/nfs/portmap"
)

var update = flag.Bool("update", false, "write the golden files")

// fakeResolver is a resolver that knows one host.
type fakeResolver struct{}

func (fakeResolver) LookupAddr(_ context.Context, addr string) ([]string, error) {
	if addr == "10.0.0.21" {
		return []string{"esx1.lab.example."}, nil
	}
	return nil, errors.New("no such address")
}

func (fakeResolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host == "esx1.lab.example" {
		return []netip.Addr{netip.MustParseAddr("10.0.0.21")}, nil
	}
	return nil, errors.New("no such host")
}

// startPortmapper starts a port mapper with the programs, and returns its address.
func startPortmapper(t *testing.T, programs ...uint32) string {
	t.Helper()
	var services []portmap.Service
	for _, p := range programs {
		services = append(services, portmap.Service{Program: p, Version: 3, Netid: portmap.TCP, Port: nfsPort})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- oncrpc.NewServer(oncrpc.Options{Programs: []*oncrpc.Program{portmap.NewMap(services...).Program()}}).Serve(ctx, l)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func newOptions(t *testing.T, distribution string) Options {
	return Options{
		Root:       os.DirFS(filepath.Join("testdata", distribution)),
		LocalAddrs: []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("192.168.10.9")},
		Portmap:    startPortmapper(t, nfsProgram, mountProgram),
		Resolver:   fakeResolver{},
		Listens:    func(context.Context, int) bool { return true },
		Exportfs:   func(context.Context) (string, error) { return "", errors.New("not installed") },
	}
}

// formatFindings formats findings as text.
func formatFindings(found []doctor.Finding) string {
	var b strings.Builder
	for _, f := range found {
		if f.Status == doctor.OK {
			fmt.Fprintf(&b, "ok             %s: %s: %s\n", f.Code, f.On, f.Found)
			continue
		}
		fmt.Fprintf(&b, "%-14s %s: %s: %s\n    want: %s\n    %s\n", f.Status, f.Code, f.On, f.Found, f.Want, strings.ReplaceAll(f.Remedy, "\n", "\n    "))
	}
	return b.String()
}

// Each directory of testdata is the configuration of a distribution with a mistake. The mistake must be the first
// finding.
func TestFixtures(t *testing.T) {
	esx1 := Host{"esx1", netip.MustParseAddr("10.0.0.21")}
	esx2 := Host{"esx2", netip.MustParseAddr("192.168.10.22")}
	for distribution, v := range map[string]struct {
		first string
		set   func(*Options)
	}{
		"debian": {"failure        nfs-reload: export 192.168.10.0/24:/srv/vm: /etc/exports:7 has async, but the running server has sync: the server was not reloaded", func(o *Options) {
			o.Hosts = []Host{esx2}
			o.Mounts = []Mount{{"esx2", "nas", "10.0.0.5", "/volume1"}, {"esx2", "old", "192.168.10.9", "/srv/vms"}}
		}},
		"rhel":    {"failure        nfs-root: export esx*.lab.example:/data/esx import: /etc/exports.d/esx.exports:1 has root_squash: ESXi can mount the datastore, but cannot write", func(o *Options) { o.Folder, o.Hosts = "/data/esx import/vm", []Host{esx1} }},
		"suse":    {"failure        nfs-client: host esx1, /srv/nfs/esx: no access from 10.0.0.21: /srv/nfs/esx is exported only to 192.168.1.0/24", func(o *Options) { o.Folder, o.Hosts = "/srv/nfs", []Host{esx1} }},
		"ubuntu":  {"failure        nfs-server: the kernel's NFS server: the server does not run, and folders are exported in /etc/exports", nil},
		"proxmox": {"failure        nfs-version: the kernel's NFS server: NFS version 3 is disabled", nil},
		"ganesha": {"warning        nfs-version: nfs-ganesha: Protocols excludes NFS version 3 for /srv/iso", func(o *Options) {
			o.Hosts = []Host{esx1}
			o.Mounts = []Mount{{"esx1", "landing", "10.0.0.9", "/srv/vm"}}
		}},
	} {
		t.Run(distribution, func(t *testing.T) {
			o := newOptions(t, distribution)
			if v.set != nil {
				v.set(&o)
			}
			got := formatFindings(doctor.Examine(t.Context(), Checks(o), doctor.Options{Short: true}))
			golden := filepath.Join("testdata", distribution+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got findings\n%s\nwant\n%s", got, want)
			}
			if !strings.HasPrefix(got, v.first) {
				t.Errorf("got first line %q, want %q", strings.SplitN(got, "\n", 2)[0], v.first)
			}
		})
	}
}

// The checks report nothing about a server without exports, or with exports that do not contain the folder.
func TestUnrelatedServersHaveNoFindings(t *testing.T) {
	runs := fstest.MapFS{
		"proc/fs/nfsd/threads": {Data: []byte("8\n")}, "proc/fs/nfsd/versions": {Data: []byte("-3 +4\n")},
		"etc/exports": {Data: []byte("# nothing\n")}, "proc/7/comm": {Data: []byte("ganesha.nfsd\n")},
	}
	o := newOptions(t, "")
	o.Root = runs
	if found := doctor.Examine(t.Context(), Checks(o), doctor.Options{Short: true}); len(found) > 0 {
		t.Errorf("a server without exports: got findings %s", formatFindings(found))
	}
	runs["etc/exports"].Data = []byte("/home *(rw)\n")
	o.Folder = "/srv/vm/"
	if found := doctor.Examine(t.Context(), Checks(o), doctor.Options{Short: true}); len(found) > 0 {
		t.Errorf("exports of home folders: got findings %s", formatFindings(found))
	}
	o.Folder = "/"
	if found := doctor.Examine(t.Context(), Checks(o), doctor.Options{Short: true}); statusOf(found, "nfs-root") != "failure" {
		t.Errorf("a folder above the exports: got findings %s", formatFindings(found))
	}
}
