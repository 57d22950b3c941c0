package https

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/transport/transporttest"
)

// TestConformance runs the suite against the small server of these tests, with one server
// and host for all disks of a rig.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	transporttest.Run(t, transporttest.Harness{
		New: newRig,
		Passes: []transporttest.Trouble{
			playing("resets", every(5, reset(1<<20))),
			playing("short bodies", every(5, short(300_000))),
			playing("a burst of 503", firstN(9, plain(503))),
			playing("wrong lengths", every(7, shorter)),
			playing("wrong ranges", every(7, shifted)),
			playing("stalls", firstN(3, stall(1<<20))),
			{Name: "an expired session", Start: func(_ *testing.T, r transporttest.Environment) func() {
				site := r.Data.(*rigSite)
				site.host.renew = func() (string, error) { return "b=2", nil }
				site.server.cookie.Store("b=2")
				return func() {}
			}},
		},
		Stops: []transporttest.Trouble{
			stopping("404", after(3, plain(404)), fault.NotFound),
			stopping("a lock", after(3, plain(500)), fault.Conflict),
			stopping("503 without end", after(3, plain(503)), fault.Transient),
			stopping("wrong lengths without end", after(3, shorter), fault.Corrupt),
			stopping("a refused session", after(3, plain(401)), fault.Denied),
			{Name: "another certificate", Kind: fault.Denied, Start: func(t *testing.T, r transporttest.Environment) func() {
				site := r.Data.(*rigSite)
				old := site.server.cert.Load()
				other, err := newCertificate()
				if err != nil {
					t.Fatal(err)
				}
				site.server.play(func(n int64, _ disk.Range) answer {
					if n < 5 {
						return nil
					}
					site.server.cert.Store(other)
					return reset(1000)
				})
				return func() { site.server.cert.Store(old); site.server.play(always(nil)) }
			}},
		},
	})
}

type rigSite struct {
	server *server
	host   *host
}

func newRig(t *testing.T, disks ...disk.Source) transporttest.Environment {
	s := startServer(t, disks[0])
	h := newHost(s)
	h.cookie.Store("a=1")
	h.allocated = mapOf(disks[0])
	var slept atomic.Int64
	opts := noSleep(&slept)
	opts.Stall = 200 * time.Millisecond
	tr := New(h, opts)
	t.Cleanup(func() { tr.Close() })
	rig := transporttest.Environment{Transport: tr, Data: &rigSite{s, h}}
	for range disks { // two disks of a test have the same content
		rig.Disks = append(rig.Disks, testDisk(disks[0].Size()))
	}
	return rig
}

func playing(name string, sc script) transporttest.Trouble {
	return transporttest.Trouble{Name: name, Start: func(t *testing.T, r transporttest.Environment) func() {
		s := r.Data.(*rigSite).server
		s.play(sc)
		return func() {
			if s.trouble.Load() == 0 {
				t.Error("it never happened")
			}
			s.play(always(nil))
		}
	}}
}

func stopping(name string, sc script, kind fault.Kind) transporttest.Trouble {
	tr := playing(name, sc)
	tr.Kind = kind
	return tr
}

// every misbehaves on each n-th request.
func every(n int64, a answer) script {
	return func(i int64, _ disk.Range) answer {
		if i%n == 0 {
			return a
		}
		return nil
	}
}

// after misbehaves on all but the first n requests.
func after(n int64, a answer) script {
	return func(i int64, _ disk.Range) answer {
		if i > n {
			return a
		}
		return nil
	}
}
