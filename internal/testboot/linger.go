package testboot

import (
	"strings"
	"time"
)

// answered reports whether the guest's agent has answered.
func (w *watch) answered() bool {
	if w.agent == nil {
		return false
	}
	told, _ := w.agent.heard()
	return told != nil
}

// awaits reports whether the agent of a running guest may have more answers. A guest shows that it is
// up before its agent runs, and the agent runs before the network is up.
func (w *watch) awaits(text string, told events, now time.Time) bool {
	if w.agent == nil || told.stopped || now.Sub(w.began) >= w.deadline() {
		return false
	}
	patience := w.opts.Settle
	if w.m.accel != KVM {
		patience *= 3
	}
	agent, whole := w.agent.heard()
	w.note(*w.up, text, now)
	switch {
	case !told.agent && agent == nil:
		return now.Sub(w.upAt) < patience // the channel may never be opened
	case !whole:
		return now.Sub(w.upAt) < 2*patience
	case w.missing(agent) == nil:
		return false
	}
	return now.Sub(w.upAt) < patience || now.Sub(w.since) < patience
}

// ask adds the agent's answers to a report.
func (w *watch) ask(r *Report) {
	if w.agent == nil || r.Verdict == "" {
		return
	}
	if r.Agent, _ = w.agent.heard(); r.Agent == nil {
		return
	}
	r.Missing = w.missing(r.Agent)
	if r.Booted() && (r.Why == agentAnswers || strings.HasPrefix(r.Why, speaks)) {
		r.Why = r.Agent.answers()
	}
}

// missing are the addresses that the guest is to have and its agent did not tell of.
func (w *watch) missing(a *Agent) []Static {
	if a.Cards == nil { // the agent reports no cards
		return nil
	}
	return missing(w.opts.Static, a.Cards, w.m.macs())
}
