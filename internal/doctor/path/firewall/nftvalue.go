package firewall

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// value is what a packet has where a rule of nft looks.
type value struct {
	never    bool // the packet has nothing there: whatever it is compared with, it is not met
	unknown  bool
	isNumber bool
	number   int64
	words    []string // equivalent words
	addr     netip.Addr
	parts    []value // parts of a concatenation
	name     bool    // name of an interface: a compared value may end with *
}

func word(all ...string) value   { return value{words: all} }
func number(n int64) value       { return value{isNumber: true, number: n} }
func address(a netip.Addr) value { return value{addr: a} }

// left returns what a rule looks at.
func (n *nftRule) left(body json.RawMessage) func(Packet) value {
	var kinds statement
	if json.Unmarshal(body, &kinds) != nil {
		return func(Packet) value { return value{unknown: true} }
	}
	for kind, body := range kinds {
		var at struct {
			Protocol, Field, Key, Result string
			Flags                        flagList
		}
		_ = json.Unmarshal(body, &at) // lists are no objects
		switch kind {
		case "payload":
			return func(p Packet) value { return p.payload(at.Protocol, at.Field) }
		case "meta":
			return func(p Packet) value { return p.meta(at.Key) }
		case "ct":
			return func(Packet) value { return conntrack(at.Key) }
		case "fib":
			if at.Result == "type" && slices.Contains(at.Flags, "daddr") {
				return func(Packet) value { return word("local") }
			}
		case "concat":
			return n.concat(body)
		case "&":
			return flags(body)
		}
	}
	return func(Packet) value { return value{unknown: true} }
}

// flagList is a word, or several.
type flagList []string

// UnmarshalJSON is part of json.Unmarshaler.
func (f *flagList) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*f = flagList{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(f))
}

func (n *nftRule) concat(body json.RawMessage) func(Packet) value {
	var parts []json.RawMessage
	if json.Unmarshal(body, &parts) != nil {
		return func(Packet) value { return value{unknown: true} }
	}
	var all []func(Packet) value
	for _, part := range parts {
		all = append(all, n.left(part))
	}
	return func(p Packet) (v value) {
		for _, part := range all {
			v.parts = append(v.parts, part(p))
		}
		return v
	}
}

// flags are those of TCP: SYN alone is set, if it is among those that are looked at.
func flags(body json.RawMessage) func(Packet) value {
	var two []json.RawMessage
	var mask flagList
	if json.Unmarshal(body, &two) != nil || len(two) != 2 || !strings.Contains(string(two[0]), `"flags"`) || json.Unmarshal(two[1], &mask) != nil {
		return func(Packet) value { return value{unknown: true} }
	}
	if slices.Contains(mask, "syn") {
		return func(Packet) value { return word("syn") }
	}
	return func(Packet) value { return value{isNumber: true, words: []string{"0x0"}} }
}

// payload returns a header field. A packet only has the fields of its protocols.
func (p Packet) payload(protocol, field string) value {
	four := p.From.Is4()
	switch protocol + " " + field {
	case "ip saddr", "ip daddr", "ip protocol", "ip version":
		if !four {
			return value{never: true}
		}
	case "ip6 saddr", "ip6 daddr", "ip6 nexthdr", "ip6 version":
		if four {
			return value{never: true}
		}
	case "tcp dport", "th dport":
		return number(int64(p.Port))
	case "tcp flags":
		return word("syn")
	}
	switch field {
	case "saddr":
		return address(p.From)
	case "daddr":
		return address(p.To)
	case "protocol", "nexthdr":
		return value{isNumber: true, number: tcp, words: []string{"tcp"}}
	}
	if !slices.Contains([]string{"ip", "ip6", "tcp", "th", "ether", "vlan"}, protocol) {
		return value{never: true} // UDP and ICMP: the packet has no such field
	}
	return value{unknown: true}
}

const tcp = 6

func (p Packet) meta(key string) value {
	four := p.From.Is4()
	switch key {
	case "l4proto":
		return value{isNumber: true, number: tcp, words: []string{"tcp"}}
	case "nfproto":
		if four {
			return word("ipv4")
		}
		return word("ipv6")
	case "protocol":
		if four {
			return word("ip")
		}
		return word("ip6")
	case "iif", "iifname":
		return value{words: []string{p.Interface}, name: true}
	case "pkttype":
		return word("host", "unicast")
	}
	return value{unknown: true}
}

// conntrack: the packet is the first of its connection.
func conntrack(key string) value {
	switch key {
	case "state":
		return word("new")
	case "direction":
		return word("original")
	case "status":
		return word("none") // a rule that translates it is met before, and is not understood
	}
	return value{unknown: true}
}

// mostNested bounds sets in sets.
const mostNested = 8

// holds compares a value with the operand of a rule: a word, a number, a network, a range, a set.
func (n *nftRule) holds(v value, right json.RawMessage, depth int) match {
	switch {
	case v.never:
		return no
	case depth > mostNested || len(right) == 0:
		return maybe
	}
	if right[0] == '"' || right[0] != '{' && right[0] != '[' {
		return n.holdsOne(v, right, depth)
	}
	if all, ok := n.elements(right); ok {
		return n.holdsAny(v, all, depth)
	}
	var r struct {
		Prefix *struct {
			Addr string
			Len  int
		}
		Range  []json.RawMessage
		Concat []json.RawMessage
		Elem   *struct{ Val json.RawMessage }
	}
	if json.Unmarshal(right, &r) != nil {
		return maybe
	}
	switch {
	case r.Prefix != nil:
		return v.isIn(r.Prefix.Addr, r.Prefix.Len)
	case len(r.Range) == 2:
		return v.isBetween(r.Range[0], r.Range[1])
	case r.Elem != nil:
		return n.holds(v, r.Elem.Val, depth+1)
	case len(r.Concat) > 0 && len(r.Concat) == len(v.parts):
		met := yes
		for i, part := range v.parts {
			met = met.and(n.holds(part, r.Concat[i], depth+1))
		}
		return met
	}
	return maybe
}

func (n *nftRule) holdsAny(v value, all []json.RawMessage, depth int) match {
	met := no
	for _, one := range all {
		if met = max(met, n.holds(v, one, depth+1)); met == yes {
			break
		}
	}
	return met
}

// elements are those of a set: written there, or named. A list stands for a set, too.
func (n *nftRule) elements(text json.RawMessage) ([]json.RawMessage, bool) {
	var name string
	if json.Unmarshal(text, &name) == nil {
		if name, ok := strings.CutPrefix(name, "@"); ok {
			return n.sets(name)
		}
		return nil, false
	}
	var list []json.RawMessage
	if json.Unmarshal(text, &list) == nil {
		return list, true
	}
	var s struct{ Set json.RawMessage }
	if json.Unmarshal(text, &s) != nil || len(s.Set) == 0 {
		return nil, false
	}
	if s.Set[0] != '[' { // nft writes a set of one element without a list
		return []json.RawMessage{s.Set}, true
	}
	_ = json.Unmarshal(s.Set, &list) // part of valid JSON
	return list, true
}

// holdsOne compares with one word or number.
func (n *nftRule) holdsOne(v value, right json.RawMessage, depth int) match {
	if all, ok := n.elements(right); ok {
		return n.holdsAny(v, all, depth)
	}
	var said any
	if json.Unmarshal(right, &said) != nil {
		return maybe
	}
	if f, ok := said.(float64); ok {
		if v.unknown || !v.isNumber {
			return maybe
		}
		return either(int64(f) == v.number)
	}
	text, ok := said.(string)
	switch {
	case !ok || v.unknown || strings.HasPrefix(text, "@"):
		return maybe
	case text == "*": // the rest of a map
		return maybe
	case v.addr.IsValid():
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return maybe
		}
		return either(addr == v.addr)
	case v.name:
		return cameBy(text, "*")(Packet{Interface: v.words[0]})
	case len(v.words) > 0:
		return either(slices.Contains(v.words, text))
	}
	return maybe
}

func (v value) isIn(addr string, bits int) match {
	net, err := netip.ParsePrefix(addr + "/" + strconv.Itoa(bits))
	if err != nil || !v.addr.IsValid() {
		return maybe
	}
	return either(net.Contains(v.addr))
}

func (v value) isBetween(low, high json.RawMessage) match {
	var from, to int64
	if v.isNumber && json.Unmarshal(low, &from) == nil && json.Unmarshal(high, &to) == nil {
		return either(from <= v.number && v.number <= to)
	}
	var first, last netip.Addr
	if v.addr.IsValid() && json.Unmarshal(low, &first) == nil && json.Unmarshal(high, &last) == nil {
		return either(first.Compare(v.addr) <= 0 && v.addr.Compare(last) <= 0)
	}
	return maybe
}
