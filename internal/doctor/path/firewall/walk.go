package firewall

// match is the result of a condition for a packet. The order of the values matters for
// and.
type match uint8

const (
	no    match = iota // the packet does not meet it
	maybe              // the result is not known
	yes                // the packet meets it
)

// not returns the opposite. The opposite of maybe is maybe.
func (m match) not() match { return yes - m }

// and returns the result of two conditions that must both be met.
func (m match) and(n match) match { return min(m, n) }

// matchOf converts a bool.
func matchOf(is bool) match {
	if is {
		return yes
	}
	return no
}

// action is what a rule does with a packet that meets its conditions.
type action uint8

const (
	continueAction action = iota // continue with the next rule: count, log, mark
	acceptAction                 // accept the packet in this base chain
	dropAction                   // drop or reject the packet
	returnAction                 // return to the calling chain
	jumpChain                    // evaluate another chain, then continue
	gotoChain                    // evaluate another chain, and return to the caller
	unsureAction                 // unknown verdict: accept, drop or continue
)

// A rule is one condition with its action. Each entry of a map is a rule.
type rule struct {
	when func(Packet) match // condition
	do   action             // action if the condition is met
	to   string             // chain of jumpChain and gotoChain
	text string             // description for messages
	cost int                // entries of sets that it may be compared with
}

// chainID identifies a chain in a listing. family is empty for iptables.
type chainID struct{ family, table, name string }

// chain is a chain with its rules.
type chain struct {
	Chain
	rules []rule // rules in order
	drops bool   // true if the policy is drop
}

// id returns the key of a chain in Rules.chains.
func (c *chain) id() chainID { return chainID{c.Family, c.Table, c.Name} }

// policyOutcome returns the result of the policy, for packets that no rule decides.
func (c *chain) policyOutcome() outcome {
	if c.drops {
		return outcome{stops: "the policy of " + c.String()}
	}
	return outcome{passes: true}
}

// outcome contains the possible results for a packet. Several may be possible, because
// of unknown conditions.
type outcome struct {
	passes bool   // true if the packet may be accepted
	stops  string // rule that stops it; empty if it is not stopped
	falls  bool   // true if evaluation may return to the calling chain
}

// or returns the union of two outcomes. It keeps the first rule that stops the packet.
func (o outcome) or(p outcome) outcome {
	if o.stops == "" {
		o.stops = p.stops
	}
	return outcome{o.passes || p.passes, o.stops, o.falls || p.falls}
}

const (
	mostSteps = 1 << 18 // limit of evaluated rules and set elements per packet
	mostDepth = 16      // limit of nested jumps, as in the kernel
)

// evaluation is the evaluation of one packet.
type evaluation struct {
	packet Packet // packet to evaluate
	rules  *Rules // rules of the listing
	left   int    // remaining steps
}

// unknownOutcome returns the possible results after an unknown statement.
func unknownOutcome(why string) outcome { return outcome{passes: true, stops: why} }

// evaluateChain evaluates the rules of a chain and of the chains that it jumps to.
// depth is the number of nested jumps.
func (w *evaluation) evaluateChain(c *chain, depth int) (all outcome) {
	for _, r := range c.rules {
		// The limit bounds the time for listings with many rules or large sets.
		if w.left -= 1 + r.cost; w.left < 0 {
			return all.or(unknownOutcome("too many rules in " + c.String()))
		}
		met := r.when(w.packet)
		if met == no {
			continue
		}
		o, on := w.evaluateRule(c, r, depth)
		all = all.or(o)
		// The rule decides for all packets. After maybe, the next rules may also apply.
		if met == yes && !on {
			return all
		}
	}
	all.falls = true
	return all
}

// evaluateRule returns the outcome of a rule whose condition may be met, and whether
// evaluation continues with the next rule.
func (w *evaluation) evaluateRule(c *chain, r rule, depth int) (o outcome, on bool) {
	why := r.text + " in " + c.String()
	switch r.do {
	case acceptAction:
		return outcome{passes: true}, false
	case dropAction:
		return outcome{stops: why}, false
	case returnAction:
		return outcome{falls: true}, false
	case unsureAction:
		return unknownOutcome(why), true
	case continueAction:
		return outcome{}, true
	}
	to := w.rules.chains[chainID{c.Family, c.Table, r.to}]
	if to == nil || depth == mostDepth {
		return unknownOutcome(why), true
	}
	o = w.evaluateChain(to, depth+1)
	if r.do == gotoChain {
		return o, false
	}
	on, o.falls = o.falls, false
	return o, on
}
