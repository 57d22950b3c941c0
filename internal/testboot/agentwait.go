package testboot

import (
	"strings"
	"time"
)

// hasAgentAnswer reports whether the guest's agent has answered.
func (w *observer) hasAgentAnswer() bool {
	if w.agent == nil {
		return false
	}
	told, _ := w.agent.result()
	return told != nil
}

// awaitsAgent reports whether the agent of a booted guest may still have answers. A
// guest shows that it is up before its agent runs, and the agent runs before the
// network is up. The limits are multiples of Options.Settle, and longer for an emulated
// guest.
func (w *observer) awaitsAgent(text string, told events, now time.Time) bool {
	if w.agent == nil || told.stopped || now.Sub(w.began) >= w.deadline() {
		return false
	}
	// An emulated guest is slower, so it gets more time.
	patience := w.opts.Settle
	if w.m.accel != KVM {
		patience *= 3
	}
	agent, whole := w.agent.result()
	w.noteChange(*w.up, text, now)
	switch {
	case !told.agent && agent == nil:
		return now.Sub(w.upAt) < patience // the channel may never be opened
	case !whole:
		return now.Sub(w.upAt) < 2*patience
	case w.missingStatic(agent) == nil:
		return false
	}
	return now.Sub(w.upAt) < patience || now.Sub(w.since) < patience
}

// addAgentAnswers adds the agent's answers to a report with a verdict.
func (w *observer) addAgentAnswers(r *Report) {
	if w.agent == nil || r.Verdict == "" {
		return
	}
	if r.Agent, _ = w.agent.result(); r.Agent == nil {
		return
	}
	r.Missing = w.missingStatic(r.Agent)
	if r.Booted() && (r.Reason == agentAnswers || strings.HasPrefix(r.Reason, sendsPackets)) {
		r.Reason = r.Agent.describe()
	}
}

// missingStatic returns the addresses of Options.Static that the agent did not report.
// It returns nil if the agent reports no cards.
func (w *observer) missingStatic(a *Agent) []Static {
	if a.Cards == nil { // the agent reports no cards
		return nil
	}
	return missingAddresses(w.opts.Static, a.Cards, w.m.cardMACs())
}
