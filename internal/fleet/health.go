package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/sched"
)

const (
	// failuresInARow is how many VMs of a host fail for passing reasons, with none that got
	// through between them, before the host is left alone.
	failuresInARow = 3

	firstRest   = 30 * time.Second // of a host that failed; it doubles
	longestRest = 10 * time.Minute

	// forgetAfter is how long after its last failure a host is as any other, if nothing that
	// was tried there said so.
	forgetAfter = time.Hour

	// trialFor is how long the one VM that tries a host must last for others to follow.
	trialFor = time.Minute
)

// healths is the kind of the records of hosts that failed lately: the next scheduler is to leave
// them alone, too. Their ids are the hosts' names.
const healths = "host-health"

// A health is what is known of a host that failed lately. Times are the database's.
type health struct {
	Failures int       `json:"failures"`       // in a row
	Rests    int       `json:"rests"`          // in a row
	Until    time.Time `json:"until,omitzero"` // end of the rest; zero: it has none
	Tried    time.Time `json:"tried,omitzero"` // when the VM that tries it began; zero: none did since the rest
	Why      string    `json:"why"`
	At       time.Time `json:"at"` // of the last failure
}

// learn takes in what became of a VM for the health of its host and of its source.
func (d *desk) learn(old, v roster.VM) {
	driven := old.State == roster.Assigned || old.State == roster.Running
	switch {
	case driven && v.Failure != nil && !v.Failure.Ours && (v.State == roster.Queued || v.State == roster.Failed):
		switch v.Failure.Kind {
		case fault.Transient.String(), fault.Unreachable.String():
			d.hostFailed(v)
		case fault.Denied.String():
			d.denied = true
		}
	case v.State == roster.Done, driven && old.Holds && !v.Holds && v.State == roster.Running:
		if d.hosts[v.Host] != nil {
			delete(d.hosts, v.Host)
			d.unsaid[v.Host] = true
			d.capacity(trialsOf(v.Host))
		}
	}
}

// hostFailed has a host rest after several failures in a row, or after one VM that tried it.
func (d *desk) hostFailed(v roster.VM) {
	h := d.hosts[v.Host]
	if h == nil {
		h = &health{}
		d.hosts[v.Host] = h
	}
	d.unsaid[v.Host] = true
	h.Failures++
	h.Why, h.At = v.Failure.Text, d.now()
	if h.Failures < failuresInARow && h.Tried.IsZero() || d.now().Before(h.Until) {
		return
	}
	h.Until = d.now().Add(min(longestRest, firstRest<<min(h.Rests, 10)))
	h.Rests++
	h.Tried = time.Time{}
	d.Log.Warn("host rests: several VMs failed in a row", "host", v.Host, "err", h.Why)
	d.capacity(trialsOf(v.Host))
}

// heal ends the rests of hosts that are over, and the trials that went well.
func (d *desk) heal() {
	for host, h := range d.hosts {
		if d.now().Sub(h.At) >= forgetAfter {
			delete(d.hosts, host)
			d.unsaid[host] = true
		}
		if !h.Tried.IsZero() && !d.now().Before(h.Tried.Add(trialFor)) {
			h.Failures, h.Until, h.Tried = 0, time.Time{}, time.Time{}
			d.unsaid[host] = true
		}
		d.capacity(trialsOf(host))
	}
}

// trial notes that a VM begins at a host whose rest is over.
func (d *desk) trial(host string) {
	if h := d.hosts[host]; h != nil && !h.Until.IsZero() && h.Tried.IsZero() {
		h.Tried = d.now()
		d.unsaid[host] = true
	}
}

// recall takes in what an earlier scheduler knew.
func (d *desk) recall(ctx context.Context) error {
	records, err := d.Roster.Records.List(ctx, healths)
	if err != nil {
		return err
	}
	for _, rec := range records {
		h := &health{}
		if err := json.Unmarshal(rec.Doc, h); err != nil {
			d.Log.Warn("what was known of a host that failed is not readable", "host", rec.ID, "err", err)
			continue
		}
		d.hosts[rec.ID] = h
	}
	return nil
}

// record writes down what became of the health of hosts.
func (d *desk) record(ctx context.Context) error {
	for host := range d.unsaid {
		var err error
		if h := d.hosts[host]; h == nil {
			err = d.Roster.Records.Drop(ctx, healths, host)
		} else {
			text, _ := json.Marshal(h) // numbers, times and a string
			err = d.Roster.Records.Put(ctx, healths, host, text)
		}
		if err != nil {
			return err
		}
		delete(d.unsaid, host)
	}
	return nil
}

// trials is how many VMs may be under way at a host as far as its health goes.
func (d *desk) trials(host string) int64 {
	h := d.hosts[host]
	switch {
	case d.hostRefused(host):
		return 0
	case h == nil || h.Until.IsZero():
		return sched.Unlimited
	case d.now().Before(h.Until):
		return 0
	}
	return 1 + d.holders(host)
}

// holders counts the transfers of a host that were under way when it was to be tried: they
// do not stand in for the VM that tries it.
func (d *desk) holders(host string) (n int64) {
	tried := d.hosts[host].Tried
	for _, v := range d.vms {
		if v.Host == host && v.Holds && (tried.IsZero() || v.Since.Before(tried)) {
			n++
		}
	}
	return n
}

// readRefusals takes in which logins were refused, and shows it with the plans that wait for
// them.
func (d *desk) readRefusals(ctx context.Context) error {
	d.denied = false
	refusals, err := readRefusals(ctx, d.Roster.Records)
	if err != nil {
		return err
	}
	old := d.refusals
	d.refusals = refusals
	for place, r := range refusals {
		if _, known := old[place]; !known {
			d.Log.Warn("login refused: nobody logs in there until somebody says resume", "source", place, "err", r.Text)
			d.shut(r)
		}
	}
	for place, r := range old {
		if _, still := refusals[place]; !still {
			d.shut(r)
		}
	}
	return d.showRefusals(ctx)
}

// shut has what a refusal keeps be what it is now.
func (d *desk) shut(r Refusal) {
	if r.Host != "" {
		d.capacity(trialsOf(r.Host))
		return
	}
	d.capacity(loginsOf(r.Source))
}

// refusalFor returns the refusal that a VM waits for.
func (d *desk) refusalFor(v roster.VM) (Refusal, bool) {
	if r, refused := d.refusals[v.Source]; refused {
		return r, true
	}
	r, refused := d.refusals[placeOf(v.Source, v.Host)]
	return r, refused
}

// hostRefused reports whether a host refuses those who log in by SSH.
func (d *desk) hostRefused(host string) bool {
	for _, r := range d.refusals {
		if r.Host == host && host != "" {
			return true
		}
	}
	return false
}

// showRefusals sets or clears the failure of the plans that wait for a login.
func (d *desk) showRefusals(ctx context.Context) error {
	for name, b := range d.plans {
		f := d.refusalOf(b)
		shown := b.Failure != nil && strings.HasPrefix(b.Failure.Text, refusedAt(b.source))
		if b.busy || f == nil && !shown || f != nil && b.Failure != nil && *f == *b.Failure {
			continue
		}
		if err := d.Roster.Plans.SetState(ctx, name, b.State, f); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		b.Failure = f
	}
	return nil
}

// refusalOf returns the refusal that a plan waits for, as its failure.
func (d *desk) refusalOf(b *book) *roster.Failure {
	r, refused := d.refusals[b.source]
	if !refused {
		return nil
	}
	hint := fmt.Sprintf("correct the password, then decamp resume %s: until then nobody logs in there, so that the account is not locked", fault.Quote(b.Name))
	return &roster.Failure{Kind: fault.Denied.String(), Text: r.Err().Error(), Hint: hint}
}
