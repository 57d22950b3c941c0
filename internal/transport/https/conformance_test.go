package https

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/transport/transporttest"
)

// TestConformance runs the suite against the test server, with one server and host for all disks of an environment.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	transporttest.Run(t, transporttest.Harness{
		New: newEnvironment,
		Passes: []transporttest.Trouble{
			scriptedTrouble("resets", everyNth(5, resetAfter(1<<20))),
			scriptedTrouble("short bodies", everyNth(5, truncateAfter(300_000))),
			scriptedTrouble("a burst of 503", firstN(9, respondStatus(503))),
			scriptedTrouble("wrong lengths", everyNth(7, wrongLength)),
			scriptedTrouble("wrong ranges", everyNth(7, wrongRange)),
			scriptedTrouble("stalls", firstN(3, stallAfter(1<<20))),
			{Name: "an expired session", Start: func(_ *testing.T, r transporttest.Environment) func() {
				site := r.Data.(*serverAndHost)
				site.host.renewCookie = func() (string, error) { return "b=2", nil }
				site.server.cookie.Store("b=2")
				return func() {}
			}},
		},
		Stops: []transporttest.Trouble{
			lastingTrouble("404", afterFirst(3, respondStatus(404)), fault.NotFound),
			lastingTrouble("a lock", afterFirst(3, respondStatus(500)), fault.Conflict),
			lastingTrouble("503 without end", afterFirst(3, respondStatus(503)), fault.Transient),
			lastingTrouble("wrong lengths without end", afterFirst(3, wrongLength), fault.Corrupt),
			lastingTrouble("a refused session", afterFirst(3, respondStatus(401)), fault.Denied),
			{Name: "another certificate", Kind: fault.Denied, Start: func(t *testing.T, r transporttest.Environment) func() {
				site := r.Data.(*serverAndHost)
				old := site.server.cert.Load()
				other, err := newCertificate()
				if err != nil {
					t.Fatal(err)
				}
				site.server.setScript(func(n int64, _ disk.Range) responder {
					if n < 5 {
						return nil
					}
					site.server.cert.Store(other)
					return resetAfter(1000)
				})
				return func() { site.server.cert.Store(old); site.server.setScript(always(nil)) }
			}},
		},
	})
}

type serverAndHost struct {
	server *server
	host   *fakeHost
}

func newEnvironment(t *testing.T, disks ...disk.Source) transporttest.Environment {
	s := startServer(t, disks[0])
	h := newFakeHost(s)
	h.cookie.Store("a=1")
	h.allocated = mapOf(disks[0])
	var slept atomic.Int64
	opts := noSleep(&slept)
	opts.Stall = time.Second
	tr := New(h, opts)
	t.Cleanup(func() { tr.Close() })
	rig := transporttest.Environment{Transport: tr, Data: &serverAndHost{s, h}}
	for range disks { // the disks of a test have the same content
		rig.Disks = append(rig.Disks, testDisk(disks[0].Size()))
	}
	return rig
}

func scriptedTrouble(name string, sc script) transporttest.Trouble {
	return transporttest.Trouble{Name: name, Start: func(t *testing.T, r transporttest.Environment) func() {
		s := r.Data.(*serverAndHost).server
		s.setScript(sc)
		return func() {
			if s.scripted.Load() == 0 {
				t.Error("the script answered no request")
			}
			s.setScript(always(nil))
		}
	}}
}

func lastingTrouble(name string, sc script, kind fault.Kind) transporttest.Trouble {
	tr := scriptedTrouble(name, sc)
	tr.Kind = kind
	return tr
}

// everyNth returns a script that answers every n-th request with a.
func everyNth(n int64, a responder) script {
	return func(i int64, _ disk.Range) responder {
		if i%n == 0 {
			return a
		}
		return nil
	}
}

// afterFirst returns a script that answers all requests but the first n with a.
func afterFirst(n int64, a responder) script {
	return func(i int64, _ disk.Range) responder {
		if i > n {
			return a
		}
		return nil
	}
}
