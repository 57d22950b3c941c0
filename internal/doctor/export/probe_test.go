package export

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/nfs/portmap"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// slowServer is a server with the procedures that the probe calls. Stable writes take turns on one slow medium, as in
// an export with sync.
type slowServer struct {
	commit time.Duration // duration of a stable write
	medium sync.Mutex

	mu    sync.Mutex
	done  []string // calls without consecutive duplicates
	wrong []string // calls with wrong arguments
}

// serve serves the port mapper, MOUNT and NFS on one port until the test ends, and returns its address.
func (s *slowServer) serve(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(l.Addr().String()).Port()
	known := portmap.NewMap(
		portmap.Service{Program: nfsProgram, Version: 3, Netid: portmap.TCP, Port: at},
		portmap.Service{Program: mountProgram, Version: 3, Netid: portmap.TCP, Port: at})
	server := oncrpc.NewServer(oncrpc.Options{Programs: []*oncrpc.Program{known.Program(), s.newProgram(mountProgram), s.newProgram(nfsProgram)}, MaxRecord: 1 << 20})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func (s *slowServer) newProgram(number uint32) *oncrpc.Program {
	return &oncrpc.Program{Number: number, Low: 3, High: 3, Procedure: func(_, n uint32) *oncrpc.Procedure {
		if n == 0 {
			return oncrpc.Null
		}
		return &oncrpc.Procedure{Decode: func(_ context.Context, c *oncrpc.Call) (oncrpc.Answer, error) {
			if number == mountProgram {
				return s.answerMount(n, c.Args), nil
			}
			return s.answerNFS(n, c.Args), nil
		}}
	}}
}

func (s *slowServer) recordCall(call string, right bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.done) == 0 || s.done[len(s.done)-1] != call {
		s.done = append(s.done, call)
	}
	if !right {
		s.wrong = append(s.wrong, call)
	}
}

func (s *slowServer) answerMount(procedure uint32, args *xdr.Decoder) oncrpc.Answer {
	right := args.String(99) == "/srv/vm"
	return func(_ context.Context, e *xdr.Encoder) error {
		if procedure == mountMnt {
			s.recordCall("mount", right)
			e.Uint32(0)
			e.Opaque([]byte("root"))
			e.Uint32(0)
		}
		return nil
	}
}

func (s *slowServer) answerNFS(procedure uint32, args *xdr.Decoder) oncrpc.Answer {
	handle := string(args.Opaque(maxHandle))
	switch procedure {
	case nfsCreate:
		s.recordCall("create", handle == "root" && strings.HasPrefix(args.String(99), ".decamp-probe-"))
		args.Read(make([]byte, 8*4)) // mode and attributes
		return func(_ context.Context, e *xdr.Encoder) error {
			e.Uint32(0)
			e.Bool(true)
			e.Opaque([]byte("file"))
			e.Bool(false)
			return nil
		}
	case nfsWrite:
		_, count, stable := args.Uint64(), args.Uint32(), args.Uint32()
		data := args.Opaque(writeSize)
		s.recordCall([]string{unstable: "unstable", fileSync: "stable"}[stable], handle == "file" && int(count) == len(data))
		return func(_ context.Context, e *xdr.Encoder) error {
			if stable == fileSync {
				s.medium.Lock()
				<-time.After(s.commit)
				s.medium.Unlock()
			}
			for _, v := range []uint32{0, 0, 0, count, stable, 0, 0} {
				e.Uint32(v)
			}
			return nil
		}
	case nfsCommit:
		s.recordCall("commit", handle == "file")
		args.Uint64()
		args.Uint32()
	case nfsRemove:
		s.recordCall("remove", handle == "root" && strings.HasPrefix(args.String(99), ".decamp-probe-"))
	}
	return func(_ context.Context, e *xdr.Encoder) error {
		e.Uint32(0)
		return nil
	}
}

// The checks report both rates of a server with slow stable writes, and remove the file of the probe.
func TestProbeMeasuresSlowStableWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	s := &slowServer{commit: 100 * time.Millisecond}
	o := newOptions(t, "")
	o.Root = fstest.MapFS{
		"etc/exports":          {Data: []byte("/srv/vm *(rw,sync,no_root_squash)\n")},
		"var/lib/nfs/etab":     {Data: []byte("/srv/vm\t*(rw,sync,no_root_squash,no_subtree_check)\n")},
		"proc/fs/nfsd/threads": {Data: []byte("8\n")},
	}
	o.Portmap, o.Probe = s.serve(t), 600*time.Millisecond
	found := doctor.Examine(t.Context(), Checks(o), doctor.Options{})
	i := slices.IndexFunc(found, func(f doctor.Finding) bool { return f.Code == "nfs-write" })
	if i < 0 || found[i].Status != doctor.Warning || !strings.Contains(found[i].Remedy, "/srv/vm *(rw,async,no_root_squash,no_subtree_check)") {
		t.Fatalf("got findings %s", formatFindings(found))
	}
	t.Log(found[i].Found)
	s.mu.Lock()
	order := slices.DeleteFunc(slices.Clone(s.done), func(call string) bool { return call == "commit" })
	if got := strings.Join(order, " "); got != "mount create unstable stable remove" || len(s.wrong) > 0 {
		t.Errorf("got calls %s, wrong arguments in %v", got, s.wrong)
	}
	s.mu.Unlock()
	if rate, err := measureRates(t.Context(), o.Portmap, netip.MustParseAddr("127.0.0.1"), "/srv/vm", o.Probe); err != nil || rate.Stable > 64<<10/s.commit.Seconds() {
		t.Errorf("got rates %v, %v; writes of %v each cannot exceed %.0f bytes/s", rate, err, s.commit, 64<<10/s.commit.Seconds())
	}
}

// The error of a probe contains the reason of the refusal.
func TestRefusedProbeReportsReason(t *testing.T) {
	at := startPortmapper(t) // without programs
	_, err := measureRates(t.Context(), at, netip.Addr{}, "/srv/vm", time.Second)
	if err == nil || !strings.Contains(err.Error(), "mount /srv/vm: program 100005 version 3 is not registered") {
		t.Errorf("got error %v", err)
	}
	if _, err := measureRates(t.Context(), "127.0.0.1:1", netip.Addr{}, "/srv/vm", time.Second); err == nil || os.IsTimeout(err) {
		t.Errorf("got error %v", err)
	}
}
