package firewall

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// listing is the output of nft -j list ruleset: a list of objects with one field each.
type listing struct {
	// tables, chains, rules, sets and maps in any order
	Things []struct {
		Chain *struct {
			Family, Table, Name, Type, Hook, Policy string
		}
		Rule *struct {
			Family, Table, Chain string
			Handle               int
			Expr                 []statement
		}
		Set, Map *struct {
			Family, Table, Name string
			Elem                []json.RawMessage
		}
	} `json:"nftables"`
}

// statement is an object with one key, the kind of the statement.
type statement map[string]json.RawMessage

// ParseNFT parses the output of nft -j list ruleset. skip excludes tables that another
// listing contains.
func ParseNFT(text []byte, skip func(family, table string) bool) (*Rules, error) {
	var l listing
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("read nft's list: %w", err)
	}
	r := &Rules{chains: map[chainID]*chain{}}
	sets := map[chainID][]json.RawMessage{}
	for _, t := range l.Things {
		if c := t.Chain; c != nil && !skip(c.Family, c.Table) {
			made := &chain{Chain: Chain{Tool: "nft", Family: c.Family, Table: c.Table, Name: c.Name}, drops: c.Policy == "drop"}
			r.chains[made.id()] = made
			if slices.Contains([]string{"prerouting", "input"}, c.Hook) && slices.Contains([]string{"ip", "ip6", "inet"}, c.Family) {
				r.base = append(r.base, made)
			}
		}
		for _, s := range []*struct {
			Family, Table, Name string
			Elem                []json.RawMessage
		}{t.Set, t.Map} {
			if s != nil {
				sets[chainID{s.Family, s.Table, s.Name}] = s.Elem
			}
		}
	}
	for _, t := range l.Things {
		if q := t.Rule; q != nil && !skip(q.Family, q.Table) {
			c := r.chains[chainID{q.Family, q.Table, q.Chain}]
			if c == nil {
				return nil, fmt.Errorf("rule %d is of chain %s %s %s, which does not exist", q.Handle, q.Family, q.Table, q.Chain)
			}
			n := nftRule{family: q.Family, sets: func(name string) ([]json.RawMessage, bool) {
				elem, ok := sets[chainID{q.Family, q.Table, name}]
				return elem, ok
			}}
			for _, s := range q.Expr {
				n.addStatement(s)
			}
			c.rules = append(c.rules, n.finish(fmt.Sprintf("rule %d", q.Handle))...)
		}
	}
	return r, nil
}

// nftRule converts the statements of one rule of nft, in their order.
type nftRule struct {
	family string                                      // family of the table
	sets   func(name string) ([]json.RawMessage, bool) // returns the elements of a named set of the table
	all    []func(Packet) match                        // conditions so far
	made   []rule                                      // rules so far
	cost   int                                         // number of set elements to compare
}

// plainStatements lists the statements after which evaluation continues, and which do
// not affect the verdict.
var plainStatements = []string{"counter", "log", "mangle", "notrack", "comment", "set", "map", "ct helper", "ct timeout", "ct expectation", "secmark", "flow"}

// addStatement converts one statement.
func (n *nftRule) addStatement(s statement) {
	for kind, body := range s {
		switch kind {
		case "match":
			n.all = append(n.all, n.toMatch(body))
		case "vmap":
			n.addMap(body)
		case "xt":
			n.all = append(n.all, always(maybe)) // compatibility rules of iptables; iptables-save lists them
			n.addVerdict(unsureAction, "")
		case "accept", "drop", "reject", "return", "continue", "jump", "goto":
			n.addVerdict(actionOf(kind, body))
		default:
			if !slices.Contains(plainStatements, kind) {
				n.addUnknown(kind)
			}
		}
	}
}

// addUnknown converts a statement that is not understood. limit and similar ones may
// match or not. The result of a redirection is unknown.
func (n *nftRule) addUnknown(kind string) {
	n.all = append(n.all, always(maybe))
	if slices.Contains([]string{"dnat", "redirect", "tproxy", "queue", "synproxy", "fwd", "dup"}, kind) {
		n.addVerdict(unsureAction, "")
	}
}

// actionOf returns the action of a verdict, and the chain that it names.
func actionOf(kind string, body json.RawMessage) (action, string) {
	var at struct{ Target string }
	_ = json.Unmarshal(body, &at) // most have none
	switch kind {
	case "accept":
		return acceptAction, ""
	case "drop", "reject":
		return dropAction, ""
	case "return":
		return returnAction, ""
	case "continue":
		return continueAction, ""
	case "jump":
		return jumpChain, at.Target
	case "goto":
		return gotoChain, at.Target
	}
	return unsureAction, ""
}

// addVerdict adds a rule for packets that meet all conditions so far.
func (n *nftRule) addVerdict(do action, to string) { n.addRule(always(yes), do, to) }

// addRule adds a rule for packets that also meet one more condition.
func (n *nftRule) addRule(also func(Packet) match, do action, to string) {
	all := slices.Clone(n.all)
	n.made = append(n.made, rule{do: do, to: to, cost: n.cost, when: func(p Packet) match {
		met := also(p)
		for _, m := range all {
			met = met.and(m(p))
		}
		return met
	}})
}

// addMap converts a map from values to verdicts (vmap). Each entry becomes a rule; the
// order does not matter, because the keys do not overlap.
func (n *nftRule) addMap(body json.RawMessage) {
	var b struct {
		Key  json.RawMessage
		Data json.RawMessage
	}
	_ = json.Unmarshal(body, &b) // missing fields are handled below
	// The map may be in place or named.
	entries, ok := n.setElements(b.Data)
	if !ok {
		n.addVerdict(unsureAction, "")
		return
	}
	left := n.operand(b.Key)
	for _, e := range entries {
		var pair []json.RawMessage
		var does statement
		if json.Unmarshal(e, &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[1], &does) != nil {
			n.addVerdict(unsureAction, "")
			continue
		}
		for kind, body := range does {
			do, to := actionOf(kind, body)
			n.addRule(func(p Packet) match { return n.matchOperand(left(p), pair[0], 0) }, do, to)
		}
	}
}

// finish returns the rules. text describes them in messages.
func (n *nftRule) finish(text string) []rule {
	for i := range n.made {
		n.made[i].text = text
	}
	return n.made
}

// toMatch converts a comparison. An operator that is not known gives maybe.
func (n *nftRule) toMatch(body json.RawMessage) func(Packet) match {
	var m struct {
		Op          string
		Left, Right json.RawMessage
	}
	if json.Unmarshal(body, &m) != nil {
		return always(maybe)
	}
	left := n.operand(m.Left)
	if set, ok := n.setElements(m.Right); ok {
		n.cost += len(set)
	}
	switch m.Op {
	case "==", "in":
		return func(p Packet) match { return n.matchOperand(left(p), m.Right, 0) }
	case "!=":
		return func(p Packet) match {
			v := left(p)
			if v.never {
				return no
			}
			return n.matchOperand(v, m.Right, 0).not()
		}
	case "<", ">", "<=", ">=":
		return func(p Packet) match { return compareOrder(left(p), m.Op, m.Right) }
	}
	return always(maybe)
}

// compareOrder compares a number with one of the operators <, >, <= and >=.
func compareOrder(v value, op string, right json.RawMessage) match {
	var limit int64
	switch {
	case v.never:
		return no
	case !v.isNumber || json.Unmarshal(right, &limit) != nil:
		return maybe
	}
	c := cmp.Compare(v.number, limit)
	return matchOf(c < 0 && strings.HasPrefix(op, "<") || c > 0 && strings.HasPrefix(op, ">") || c == 0 && strings.HasSuffix(op, "="))
}
