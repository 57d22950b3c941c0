package firewall

// match is the result of a packet's comparison with a condition.
type match uint8

const (
	no match = iota
	maybe
	yes
)

func (m match) not() match { return yes - m }

// and is what both say together.
func (m match) and(n match) match { return min(m, n) }

// either returns yes or no for a known condition.
func either(is bool) match {
	if is {
		return yes
	}
	return no
}

// deed is what a rule does with a packet that meets it.
type deed uint8

const (
	goOn deed = iota // count, log, mark
	pass
	stop
	back
	jump
	leap   // a jump that does not come back: goto
	unsure // unknown verdict: it may pass, stop, or continue
)

// A rule is one condition with its verdict. Each entry of a map is a rule.
type rule struct {
	when func(Packet) match
	do   deed
	to   string // chain of jump and leap
	text string // text for users
	cost int    // entries of sets that it may be compared with
}

type chainID struct{ family, table, name string }

type chain struct {
	Chain
	rules []rule
	drops bool // the policy
}

func (c *chain) id() chainID { return chainID{c.Family, c.Table, c.Name} }

func (c *chain) policyOutcome() outcome {
	if c.drops {
		return outcome{stops: "the policy of " + c.String()}
	}
	return outcome{passes: true}
}

// outcome has the possible results for a packet.
type outcome struct {
	passes bool
	stops  string // rule that stops it; empty if it is not stopped
	falls  bool   // whether it returns to the calling chain
}

func (o outcome) or(p outcome) outcome {
	if o.stops == "" {
		o.stops = p.stops
	}
	return outcome{o.passes || p.passes, o.stops, o.falls || p.falls}
}

const (
	mostSteps = 1 << 18 // rules that one packet passes, and entries of their sets
	mostDepth = 16      // jumps into each other, as the kernel has it
)

// walk takes a packet along.
type walk struct {
	packet Packet
	rules  *Rules
	left   int // steps
}

// unknownOutcome returns the possible results after an unknown statement.
func unknownOutcome(why string) outcome { return outcome{passes: true, stops: why} }

// chain evaluates the rules of a chain and of those that it jumps to.
func (w *walk) chain(c *chain, depth int) (all outcome) {
	for _, r := range c.rules {
		if w.left -= 1 + r.cost; w.left < 0 {
			return all.or(unknownOutcome("rules without end in " + c.String()))
		}
		met := r.when(w.packet)
		if met == no {
			continue
		}
		o, on := w.rule(c, r, depth)
		all = all.or(o)
		if met == yes && !on {
			return all
		}
	}
	all.falls = true
	return all
}

// rule returns the result of a matching rule, and whether the next one is evaluated.
func (w *walk) rule(c *chain, r rule, depth int) (o outcome, on bool) {
	why := r.text + " in " + c.String()
	switch r.do {
	case pass:
		return outcome{passes: true}, false
	case stop:
		return outcome{stops: why}, false
	case back:
		return outcome{falls: true}, false
	case unsure:
		return unknownOutcome(why), true
	case goOn:
		return outcome{}, true
	}
	to := w.rules.chains[chainID{c.Family, c.Table, r.to}]
	if to == nil || depth == mostDepth {
		return unknownOutcome(why), true
	}
	o = w.chain(to, depth+1)
	if r.do == leap {
		return o, false
	}
	on, o.falls = o.falls, false
	return o, on
}
