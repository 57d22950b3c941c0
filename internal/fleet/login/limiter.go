package login

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sleep"
)

const (
	// leaseTTL is the length of the lease that a login requires. The lease of a process that dies during a
	// login ends after that.
	leaseTTL = 5 * time.Second

	// renewals is how often the lease is renewed within its length.
	renewals = 3

	// leasePoll is the pause before a lease that another process holds is requested again.
	leasePoll = 250 * time.Millisecond

	// lastWrites bounds the writes after the context of a login has ended.
	lastWrites = 10 * time.Second
)

// A Limiter permits the logins of one process at one place: at a source, or by SSH at one of its hosts with
// an account of that host. Its methods may be called concurrently.
type Limiter struct {
	db           *fleetdb.Database // fleet database with the leases and the refusals
	source, host string            // place of the logins; host is "" for the source itself
	owner        string            // owner of the lease, different in each process

	waiting atomic.Int32   // callers that hold token or wait for it
	token   chan struct{}  // holds one token; the caller that took it may log in and use the fields below
	lease   *fleetdb.Lease // held while logins of this process follow each other; else nil
	refused bool           // a refusal was returned, and no login was permitted since
	unsaved *Refusal       // a refusal that is not recorded yet; nil if all are recorded
}

// NewLimiter returns the limiter of logins at source, host:port, or at one of its hosts unless host is "".
func NewLimiter(r *fleetdb.Database, source, host string) *Limiter {
	l := &Limiter{
		db: r, source: source, host: host, token: make(chan struct{}, 1),
		owner: fmt.Sprintf("%d/%08x", os.Getpid(), rand.Uint32()),
	}
	l.token <- struct{}{}
	return l
}

// Admit waits until a login may be tried. No other login begins until done is called with its result.
// First reports that this is the first login after an operator lifted a refusal. While a refusal is on
// record, Admit returns a fault.ErrLogin at once.
func (l *Limiter) Admit(ctx context.Context) (done func(error), first bool, err error) {
	if err := l.takeToken(ctx); err != nil {
		return nil, false, err
	}
	if err := l.checkRefusals(ctx); err != nil {
		l.returnToken(ctx)
		return nil, false, err
	}
	first, l.refused = l.refused, false
	during, end := context.WithCancel(ctx)
	var renewal errgroup.Group
	renewal.Go(func() error { return l.renewLease(during, *l.lease) })
	return func(err error) {
		end()
		_ = renewal.Wait() // its error does not matter: the login is over
		l.saveResult(ctx, err)
		l.returnToken(ctx)
	}, first, nil
}

// Refuse records a fault.Denied from before a login, such as a changed certificate, as a refused login:
// an operator decides about it once, and no other VM tries again. It returns other errors unchanged.
// A nil Limiter returns every error unchanged.
func (l *Limiter) Refuse(ctx context.Context, err error) error {
	if l == nil || !fault.Is(err, fault.Denied) || IsRefusal(err) {
		return err
	}
	if err := l.takeToken(ctx); err != nil {
		return err
	}
	defer l.returnToken(ctx)
	refused := fault.New(fault.Denied, "%w", err).OfLogin().WithHint("%s", fault.HintOf(err))
	l.saveResult(ctx, refused)
	return refused
}

// takeToken waits until this caller may log in. It returns ctx's error if ctx ends first.
func (l *Limiter) takeToken(ctx context.Context) error {
	l.waiting.Add(1)
	select {
	case <-l.token:
		return nil
	case <-ctx.Done():
		l.waiting.Add(-1)
		return ctx.Err()
	}
}

// returnToken permits the next caller of this process to log in. If no caller waits, it frees the lease for
// other processes.
func (l *Limiter) returnToken(ctx context.Context) {
	if l.waiting.Add(-1) == 0 && l.lease != nil {
		last, end := lastWritesContext(ctx)
		_ = l.db.Leases.Free(last, *l.lease) // otherwise it expires
		end()
		l.lease = nil
	}
	l.token <- struct{}{}
}

// checkRefusals acquires the lease and returns the recorded refusal of any process as an error; nil if
// none exists.
func (l *Limiter) checkRefusals(ctx context.Context) error {
	if err := l.acquireLease(ctx); err != nil {
		return err
	}
	if err := l.saveRefusal(ctx); err != nil {
		return err
	}
	all, err := Refusals(ctx, l.db)
	if err != nil {
		return err
	}
	for _, id := range []string{l.source, RecordID(l.source, l.host)} {
		if r, refused := all[id]; refused {
			l.refused = true
			return r.Err()
		}
	}
	return nil
}

// acquireLease waits for the lease. Another process holds it during a few logins.
func (l *Limiter) acquireLease(ctx context.Context) error {
	for {
		lease, err := l.db.Leases.Acquire(ctx, "login:"+RecordID(l.source, l.host), l.owner, leaseTTL)
		if err == nil {
			l.lease = &lease
			return nil
		}
		if !fault.Is(err, fault.Conflict) {
			return err
		}
		if err := sleep.For(ctx, leasePoll); err != nil {
			return err
		}
	}
}

// renewLease renews the lease until ctx ends: a login may wait until the user has typed a password.
func (l *Limiter) renewLease(ctx context.Context, lease fleetdb.Lease) error {
	for {
		if err := sleep.For(ctx, leaseTTL/renewals); err != nil {
			return err
		}
		_ = l.db.Leases.Renew(ctx, &lease, leaseTTL) // a lost lease costs one login too many at worst
	}
}

// saveResult records err if it is a refused login, before another login can begin.
func (l *Limiter) saveResult(ctx context.Context, err error) {
	if !IsRefusal(err) {
		return
	}
	l.refused = true
	l.unsaved = &Refusal{Source: l.source, Host: l.host, Text: err.Error(), Hint: fault.HintOf(err), At: time.Now()}
	last, end := lastWritesContext(ctx)
	defer end()
	_ = l.saveRefusal(last) // the next login tries again
}

// saveRefusal records the refusal that is not recorded yet.
func (l *Limiter) saveRefusal(ctx context.Context) error {
	if l.unsaved == nil {
		return nil
	}
	err := putRefusal(ctx, l.db, *l.unsaved)
	if err == nil {
		l.unsaved = nil
	}
	return err
}

// lastWritesContext returns a context for writes that are required after ctx has ended. It ends after
// lastWrites.
func lastWritesContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), lastWrites)
}
