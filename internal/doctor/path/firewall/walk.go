package firewall

// match says whether a packet meets a condition.
type match uint8

const (
	no match = iota
	maybe
	yes
)

func (m match) not() match { return yes - m }

// and is what both say together.
func (m match) and(n match) match { return min(m, n) }

// either is yes or no of what is known.
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
	unsure // what is not known here: it may pass, stop, or go on
)

// A rule is one condition and what follows from it. Where a listing has maps, each of their entries
// is one.
type rule struct {
	when func(Packet) match
	do   deed
	to   string // of jump and leap
	text string // for people
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

// outcome is what may become of a packet.
type outcome struct {
	passes bool
	stops  string // by what; empty: it is not stopped
	falls  bool   // to whoever called the chain
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

// nobodyKnows is what may become of a packet where something is not understood.
func nobodyKnows(why string) outcome { return outcome{passes: true, stops: why} }

// chain follows the rules of one, and what it jumps to.
func (w *walk) chain(c *chain, depth int) (all outcome) {
	for _, r := range c.rules {
		if w.left -= 1 + r.cost; w.left < 0 {
			return all.or(nobodyKnows("rules without end in " + c.String()))
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

// rule says what comes of a rule that is met, and whether the next one may have its turn.
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
		return nobodyKnows(why), true
	case goOn:
		return outcome{}, true
	}
	to := w.rules.chains[chainID{c.Family, c.Table, r.to}]
	if to == nil || depth == mostDepth {
		return nobodyKnows(why), true
	}
	o = w.chain(to, depth+1)
	if r.do == leap {
		return o, false
	}
	on, o.falls = o.falls, false
	return o, on
}
