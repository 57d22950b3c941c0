package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/sleep"
)

const (
	// loginTTL is how long the lease of a login lasts that a process died in.
	loginTTL = 5 * time.Second

	// loginPoll is how often a process asks for the lease that another one has.
	loginPoll = 250 * time.Millisecond
)

// Logins are those of a process at one place: at a source, or by SSH at one of its hosts with an
// account of its own. In the whole fleet one is under way at a time, and none while a refusal is
// on record: hosts lock an account after a few (ESXi after five within 15 minutes), and then
// nobody gets in, the operator included.
type Logins struct {
	roster       *roster.Roster
	source, host string
	owner        string // of the lease: tells this process from all others

	waiting atomic.Int32  // who have the turn or want it
	turn    chan struct{} // one token: who has it logs in, and may touch what follows
	lease   *roster.Lease // had while logins of this process follow each other
	told    bool          // a refusal was told that nobody logged in after
	owed    *Refusal      // what could not be put on record
}

// NewLogins returns those at source, host:port; at one of its hosts unless host is "".
func NewLogins(r *roster.Roster, source, host string) *Logins {
	l := &Logins{
		roster: r, source: source, host: host, turn: make(chan struct{}, 1),
		owner: fmt.Sprintf("%d/%08x", os.Getpid(), rand.Uint32()),
	}
	l.turn <- struct{}{}
	return l
}

// Admit waits until a login may be tried, and keeps others from it until pass is told how it went.
// Again says that it is the first one after somebody said resume. Where one was refused that is
// a fault.ErrLogin at once.
func (l *Logins) Admit(ctx context.Context) (pass func(error), again bool, err error) {
	if err := l.enter(ctx); err != nil {
		return nil, false, err
	}
	if err := l.check(ctx); err != nil {
		l.leave(ctx)
		return nil, false, err
	}
	again, l.told = l.told, false
	under, end := context.WithCancel(ctx)
	var keeping errgroup.Group
	keeping.Go(func() error { return l.keep(under, *l.lease) })
	return func(err error) {
		end()
		_ = keeping.Wait() // why it is not kept any more
		l.judged(ctx, err)
		l.leave(ctx)
	}, again, nil
}

// Refuse has a Denied that was met on the way to a login count as one: a certificate that
// changed is to be looked at by people, once, and not to be met by each VM.
func (l *Logins) Refuse(ctx context.Context, err error) error {
	if l == nil || !fault.Is(err, fault.Denied) || isRefusal(err) {
		return err
	}
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave(ctx)
	refused := fault.New(fault.Denied, "%w", err).OfLogin().WithHint("%s", fault.HintOf(err))
	l.judged(ctx, refused)
	return refused
}

// enter takes the turn.
func (l *Logins) enter(ctx context.Context) error {
	l.waiting.Add(1)
	select {
	case <-l.turn:
		return nil
	case <-ctx.Done():
		l.waiting.Add(-1)
		return ctx.Err()
	}
}

// leave lets the next one of this process try; if nobody waits, those of others.
func (l *Logins) leave(ctx context.Context) {
	if l.waiting.Add(-1) == 0 && l.lease != nil {
		last, end := parting(ctx)
		_ = l.roster.Leases.Free(last, *l.lease) // it ends by itself
		end()
		l.lease = nil
	}
	l.turn <- struct{}{}
}

// check makes sure of the fleet's lease, and that nobody was refused, here or by another process.
func (l *Logins) check(ctx context.Context) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	if err := l.record(ctx); err != nil {
		return err
	}
	all, err := readRefusals(ctx, l.roster.Records)
	if err != nil {
		return err
	}
	for _, place := range []string{l.source, placeOf(l.source, l.host)} {
		if r, refused := all[place]; refused {
			l.told = true
			return r.Err()
		}
	}
	return nil
}

// take waits for the lease: another process has it for the length of a few logins.
func (l *Logins) take(ctx context.Context) error {
	for {
		lease, err := l.roster.Leases.Acquire(ctx, "login:"+placeOf(l.source, l.host), l.owner, loginTTL)
		if err == nil {
			l.lease = &lease
			return nil
		}
		if !fault.Is(err, fault.Conflict) {
			return err
		}
		if err := sleep.For(ctx, loginPoll); err != nil {
			return err
		}
	}
}

// keep renews the lease for as long as a login is under way: somebody may be typing a password.
func (l *Logins) keep(ctx context.Context, lease roster.Lease) error {
	for {
		if err := sleep.For(ctx, loginTTL/renewals); err != nil {
			return err
		}
		_ = l.roster.Leases.Renew(ctx, &lease, loginTTL) // tried again; what is lost is a login too many at the worst
	}
}

// judged takes in how a login went, before anybody else can try.
func (l *Logins) judged(ctx context.Context, err error) {
	if !isRefusal(err) {
		return
	}
	l.told = true
	l.owed = &Refusal{Source: l.source, Host: l.host, Text: err.Error(), Hint: fault.HintOf(err), At: time.Now()}
	last, end := parting(ctx)
	defer end()
	_ = l.record(last) // the next one who wants to log in tries again
}

// record puts the refusal on record that is not there yet.
func (l *Logins) record(ctx context.Context) error {
	if l.owed == nil {
		return nil
	}
	err := putRefusal(ctx, l.roster.Records, *l.owed)
	if err == nil {
		l.owed = nil
	}
	return err
}
