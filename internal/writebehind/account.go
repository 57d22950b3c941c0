package writebehind

import (
	"context"
	"slices"
)

// An account is what one file has of a pool. It keeps files fair to each other: a file may
// hold as many bytes as are left for all others, so that one whose target is stuck leaves
// half of the pool alone, two leave a third, and so on.
type account struct {
	freeMemory func() // makes the file write incomplete chunks; never called with the pool's mu

	held    int64 // bytes of buffers; all below need the pool's mu
	windows int
	waiting waitQueue // tickets that wait for admission
	shut    bool
}

// openAccount opens an account.
func (p *Pool) openAccount(press func()) *account {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &account{freeMemory: press}
	p.accounts = append(slices.Clone(p.accounts), a)
	return a
}

// closeAccount closes the account of a file that is closed.
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

// admitBuffer books b to the account, waiting while that has more than its share. It reports
// false if the account was shut instead.
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

// tryAdmit books b to the account if that may have it at once.
func (p *Pool) tryAdmit(a *account, b *Buffer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.shut || !a.waiting.isEmpty() || !p.fitsShare(a, int64(len(b.memory))) {
		return false
	}
	p.bookBuffer(a, b)
	return true
}

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

// fitsShare reports whether the file may hold n bytes more. One that holds nothing always may,
// or nothing would ever move once all memory waits to be admitted. It needs mu.
func (p *Pool) fitsShare(a *account, n int64) bool {
	return a.held == 0 || a.held+n <= max(p.free, p.floor)
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

// bookBuffer adds b to what the file holds, until put takes it off again. It needs mu.
func (p *Pool) bookBuffer(a *account, b *Buffer) {
	a.held += int64(len(b.memory))
	b.account = a
}

// admitWaiting admits whom it can, each file's writes in order, and another file first
// each time. It needs mu.
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
