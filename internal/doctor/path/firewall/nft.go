package firewall

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// listing is what nft -j list ruleset prints: an object for each thing.
type listing struct {
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

// statement is one object with one key, the kind of the statement.
type statement map[string]json.RawMessage

// ParseNFT parses the output of nft -j list ruleset. skip excludes tables that another listing
// contains.
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
				return nil, fmt.Errorf("rule %d is of chain %s %s %s, which is not there", q.Handle, q.Family, q.Table, q.Chain)
			}
			n := nftRule{family: q.Family, sets: func(name string) ([]json.RawMessage, bool) {
				elem, ok := sets[chainID{q.Family, q.Table, name}]
				return elem, ok
			}}
			for _, s := range q.Expr {
				n.read(s)
			}
			c.rules = append(c.rules, n.rules(fmt.Sprintf("rule %d", q.Handle))...)
		}
	}
	return r, nil
}

// nftRule is a rule as its statements are read, from left to right.
type nftRule struct {
	family string
	sets   func(name string) ([]json.RawMessage, bool)
	all    []func(Packet) match
	made   []rule
	cost   int
}

// plain are statements after which the next one has its turn, whatever they do.
var plain = []string{"counter", "log", "mangle", "notrack", "comment", "set", "map", "ct helper", "ct timeout", "ct expectation", "secmark", "flow"}

// read takes one statement in.
func (n *nftRule) read(s statement) {
	for kind, body := range s {
		switch kind {
		case "match":
			n.all = append(n.all, n.match(body))
		case "vmap":
			n.branch(body)
		case "xt":
			n.all = append(n.all, always(maybe)) // compatibility rules of iptables; iptables-save lists them
			n.end(unsure, "")
		case "accept", "drop", "reject", "return", "continue", "jump", "goto":
			n.end(verdict(kind, body))
		default:
			if !slices.Contains(plain, kind) {
				n.other(kind)
			}
		}
	}
}

// other handles an unknown statement: limit and similar ones may match, and those that redirect packets
// end the analysis.
func (n *nftRule) other(kind string) {
	n.all = append(n.all, always(maybe))
	if slices.Contains([]string{"dnat", "redirect", "tproxy", "queue", "synproxy", "fwd", "dup"}, kind) {
		n.end(unsure, "")
	}
}

// verdict is what a statement does, and the chain it names.
func verdict(kind string, body json.RawMessage) (deed, string) {
	var at struct{ Target string }
	_ = json.Unmarshal(body, &at) // most have none
	switch kind {
	case "accept":
		return pass, ""
	case "drop", "reject":
		return stop, ""
	case "return":
		return back, ""
	case "continue":
		return goOn, ""
	case "jump":
		return jump, at.Target
	case "goto":
		return leap, at.Target
	}
	return unsure, ""
}

// end adds the verdict for packets that meet all conditions so far.
func (n *nftRule) end(do deed, to string) { n.add(always(yes), do, to) }

func (n *nftRule) add(also func(Packet) match, do deed, to string) {
	all := slices.Clone(n.all)
	n.made = append(n.made, rule{do: do, to: to, cost: n.cost, when: func(p Packet) match {
		met := also(p)
		for _, m := range all {
			met = met.and(m(p))
		}
		return met
	}})
}

// branch is a map from values to verdicts. Its entries are tried one after the other: they do not
// overlap.
func (n *nftRule) branch(body json.RawMessage) {
	var b struct {
		Key  json.RawMessage
		Data json.RawMessage
	}
	_ = json.Unmarshal(body, &b) // missing fields are handled below
	entries, ok := n.elements(b.Data)
	if !ok {
		n.end(unsure, "")
		return
	}
	left := n.left(b.Key)
	for _, e := range entries {
		var pair []json.RawMessage
		var does statement
		if json.Unmarshal(e, &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[1], &does) != nil {
			n.end(unsure, "")
			continue
		}
		for kind, body := range does {
			do, to := verdict(kind, body)
			n.add(func(p Packet) match { return n.holds(left(p), pair[0], 0) }, do, to)
		}
	}
}

// rules are what the statements came to.
func (n *nftRule) rules(text string) []rule {
	for i := range n.made {
		n.made[i].text = text
	}
	return n.made
}

// match is a comparison.
func (n *nftRule) match(body json.RawMessage) func(Packet) match {
	var m struct {
		Op          string
		Left, Right json.RawMessage
	}
	if json.Unmarshal(body, &m) != nil {
		return always(maybe)
	}
	left := n.left(m.Left)
	if set, ok := n.elements(m.Right); ok {
		n.cost += len(set)
	}
	switch m.Op {
	case "==", "in":
		return func(p Packet) match { return n.holds(left(p), m.Right, 0) }
	case "!=":
		return func(p Packet) match {
			v := left(p)
			if v.never {
				return no
			}
			return n.holds(v, m.Right, 0).not()
		}
	case "<", ">", "<=", ">=":
		return func(p Packet) match { return ordered(left(p), m.Op, m.Right) }
	}
	return always(maybe)
}

func ordered(v value, op string, right json.RawMessage) match {
	var limit int64
	switch {
	case v.never:
		return no
	case !v.isNumber || json.Unmarshal(right, &limit) != nil:
		return maybe
	}
	c := cmp.Compare(v.number, limit)
	return either(c < 0 && strings.HasPrefix(op, "<") || c > 0 && strings.HasPrefix(op, ">") || c == 0 && strings.HasSuffix(op, "="))
}
