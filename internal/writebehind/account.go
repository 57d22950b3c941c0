package writebehind

import (
	"context"
	"slices"
)

// An account counts the memory of a pool that one file uses. It keeps files fair to each other: a file
// may have as many bytes as are left for all others. A file with a stuck target therefore leaves half
// of the pool free, two of them leave a third, and so on.
type account struct {
	freeMemory func() // makes the file write incomplete chunks; never called with the pool's mu

	lentBytes int64     // bytes of the file's buffers; the pool's mu guards it and the fields below
	windows   int       // windows that the file's writers have
	waiting   waitQueue // tickets that wait for admission
	shut      bool      // no buffer is admitted any more
}

// openAccount returns a new account. Its freeMemory may be called from then on.
func (p *Pool) openAccount(press func()) *account {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &account{freeMemory: press}
	p.accounts = append(slices.Clone(p.accounts), a)
	return a
}

// closeAccount removes the account of a closed file.
func (p *Pool) closeAccount(a *account) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accounts = slices.DeleteFunc(slices.Clone(p.accounts), func(b *account) bool { return a == b })
}

// shutAccount rejects all current and future waiters of the account.
func (p *Pool) shutAccount(a *account) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.shut = true
	refuse := func(t *ticket) bool { return t.account == a }
	a.waiting.answerReady(refuse)
	p.wide.answerReady(refuse)
}

// admitBuffer adds b to the account, and waits while the account has more than its share. It returns
// false if the account was shut instead, and ctx.Err() if ctx ends.
func (p *Pool) admitBuffer(ctx context.Context, a *account, b *Buffer) (bool, error) {
	t, ok := p.admitOrQueue(a, b)
	if t == nil {
		return ok, nil
	}
	a.freeMemory()
	select {
	case <-t.ready:
	case <-ctx.Done():
		if p.abandonTicket(&a.waiting, t) {
			return false, ctx.Err()
		}
		<-t.ready
	}
	return p.redeemTicket(t).ok, ctx.Err()
}

// tryAdmit adds b to the account if that need not wait, and reports whether it did.
func (p *Pool) tryAdmit(a *account, b *Buffer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.shut || !a.waiting.isEmpty() || !p.fitsShare(a, int64(len(b.memory))) {
		return false
	}
	p.bookBuffer(a, b)
	return true
}

// admitOrQueue adds b to the account and returns true, or returns a ticket that waits for it. For a
// shut account it returns neither.
func (p *Pool) admitOrQueue(a *account, b *Buffer) (*ticket, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.shut {
		return nil, false
	}
	n := int64(len(b.memory))
	if a.waiting.isEmpty() && p.fitsShare(a, n) {
		p.bookBuffer(a, b)
		return nil, true
	}
	t := p.idleTicket()
	t.account, t.buffer = a, b
	a.waiting.push(t)
	return t, false
}

// fitsShare reports whether the file may have n bytes more. A file without memory always may: otherwise
// nothing would progress once all memory waits for admission. mu must be held.
func (p *Pool) fitsShare(a *account, n int64) bool {
	return a.lentBytes == 0 || a.lentBytes+n <= max(p.free, p.floor)
}

// admitAll admits all waiters of the account, regardless of its share.
func (p *Pool) admitAll(a *account) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.waiting.answerReady(func(t *ticket) bool {
		p.bookBuffer(a, t.buffer)
		t.ok = true
		return true
	})
}

// bookBuffer adds b to the account, until reclaimBuffer subtracts it. mu must be held.
func (p *Pool) bookBuffer(a *account, b *Buffer) {
	a.lentBytes += int64(len(b.memory))
	b.account = a
}

// admitWaiting admits as many waiting writes as possible, those of a file in order. It starts with
// another file each time. mu must be held.
func (p *Pool) admitWaiting() {
	p.turn++
	for i := range p.accounts {
		a := p.accounts[(p.turn+i)%len(p.accounts)]
		if a.waiting.isEmpty() {
			continue
		}
		refused := false
		a.waiting.answerReady(func(t *ticket) bool {
			if refused = refused || !p.fitsShare(a, int64(len(t.buffer.memory))); !refused {
				p.bookBuffer(a, t.buffer)
				t.ok = true
			}
			return !refused
		})
	}
}
