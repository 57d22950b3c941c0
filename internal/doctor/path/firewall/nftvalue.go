package firewall

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// value is an operand: the property of a packet that a rule examines.
type value struct {
	never    bool       // the packet has no such property: all comparisons are false
	unknown  bool       // the property is not known: all comparisons are maybe
	isNumber bool       // number is set
	number   int64      // value of a number
	words    []string   // equivalent words
	addr     netip.Addr // address; invalid for other values
	parts    []value    // parts of a concatenation
	name     bool       // name of an interface: a compared value may end with *
}

// wordValue returns a value that is written as any of the words.
func wordValue(all ...string) value { return value{words: all} }

// numberValue returns a number.
func numberValue(n int64) value { return value{isNumber: true, number: n} }

// addrValue returns an address.
func addrValue(a netip.Addr) value { return value{addr: a} }

// operand converts the left side of a comparison. A kind that is not known has an
// unknown value.
func (n *nftRule) operand(body json.RawMessage) func(Packet) value {
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
			return func(p Packet) value { return p.payloadField(at.Protocol, at.Field) }
		case "meta":
			return func(p Packet) value { return p.metaValue(at.Key) }
		case "ct":
			return func(Packet) value { return conntrackValue(at.Key) }
		case "fib":
			if at.Result == "type" && slices.Contains(at.Flags, "daddr") {
				return func(Packet) value { return wordValue("local") }
			}
		case "concat":
			return n.concatOperand(body)
		case "&":
			return flagsOperand(body)
		}
	}
	return func(Packet) value { return value{unknown: true} }
}

// flagList is a word or a list of words.
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

// concatOperand converts a concatenation of operands.
func (n *nftRule) concatOperand(body json.RawMessage) func(Packet) value {
	var parts []json.RawMessage
	if json.Unmarshal(body, &parts) != nil {
		return func(Packet) value { return value{unknown: true} }
	}
	var all []func(Packet) value
	for _, part := range parts {
		all = append(all, n.operand(part))
	}
	return func(p Packet) (v value) {
		for _, part := range all {
			v.parts = append(v.parts, part(p))
		}
		return v
	}
}

// flagsOperand converts a mask of TCP flags. Of the flags in the mask, only SYN is set.
func flagsOperand(body json.RawMessage) func(Packet) value {
	var two []json.RawMessage
	var mask flagList
	if json.Unmarshal(body, &two) != nil || len(two) != 2 || !strings.Contains(string(two[0]), `"flags"`) || json.Unmarshal(two[1], &mask) != nil {
		return func(Packet) value { return value{unknown: true} }
	}
	if slices.Contains(mask, "syn") {
		return func(Packet) value { return wordValue("syn") }
	}
	return func(Packet) value { return value{isNumber: true, words: []string{"0x0"}} }
}

// payloadField returns a header field. A packet only has the fields of its protocols.
func (p Packet) payloadField(protocol, field string) value {
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
		return numberValue(int64(p.Port))
	case "tcp flags":
		return wordValue("syn")
	}
	switch field {
	case "saddr":
		return addrValue(p.From)
	case "daddr":
		return addrValue(p.To)
	case "protocol", "nexthdr":
		return value{isNumber: true, number: tcp, words: []string{"tcp"}}
	}
	if !slices.Contains([]string{"ip", "ip6", "tcp", "th", "ether", "vlan"}, protocol) {
		return value{never: true} // UDP and ICMP: the packet has no such field
	}
	return value{unknown: true}
}

// tcp is the protocol number of TCP.
const tcp = 6

// metaValue returns a property outside of the packet, such as its interface.
func (p Packet) metaValue(key string) value {
	four := p.From.Is4()
	switch key {
	case "l4proto":
		return value{isNumber: true, number: tcp, words: []string{"tcp"}}
	case "nfproto":
		if four {
			return wordValue("ipv4")
		}
		return wordValue("ipv6")
	case "protocol":
		if four {
			return wordValue("ip")
		}
		return wordValue("ip6")
	case "iif", "iifname":
		return value{words: []string{p.Interface}, name: true}
	case "pkttype":
		return wordValue("host", "unicast")
	}
	return value{unknown: true}
}

// conntrackValue returns a property of the connection. The packet is its first.
func conntrackValue(key string) value {
	switch key {
	case "state":
		return wordValue("new")
	case "direction":
		return wordValue("original")
	case "status":
		return wordValue("none") // a rule that translates it is met before, and is not understood
	}
	return value{unknown: true}
}

// mostNested limits the depth of nested sets.
const mostNested = 8

// matchOperand compares a value with the right side of a comparison: a word, number,
// network, range or set. depth is the number of enclosing sets.
func (n *nftRule) matchOperand(v value, right json.RawMessage, depth int) match {
	switch {
	case v.never:
		return no
	case depth > mostNested || len(right) == 0:
		return maybe
	}
	if right[0] == '"' || right[0] != '{' && right[0] != '[' {
		return n.matchWord(v, right, depth)
	}
	if all, ok := n.setElements(right); ok {
		return n.matchAny(v, all, depth)
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
		return n.matchOperand(v, r.Elem.Val, depth+1)
	case len(r.Concat) > 0 && len(r.Concat) == len(v.parts):
		met := yes
		for i, part := range v.parts {
			met = met.and(n.matchOperand(part, r.Concat[i], depth+1))
		}
		return met
	}
	return maybe
}

// matchAny returns the best result of a comparison with several operands.
func (n *nftRule) matchAny(v value, all []json.RawMessage, depth int) match {
	met := no
	for _, one := range all {
		// One matching element is enough.
		if met = max(met, n.matchOperand(v, one, depth+1)); met == yes {
			break
		}
	}
	return met
}

// setElements returns the elements of a set, which is in place or named. A list is also
// a set. It returns false for other operands.
func (n *nftRule) setElements(text json.RawMessage) ([]json.RawMessage, bool) {
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
	// The JSON format of nft is not uniform here.
	if s.Set[0] != '[' { // nft writes a set of one element without a list
		return []json.RawMessage{s.Set}, true
	}
	_ = json.Unmarshal(s.Set, &list) // part of valid JSON
	return list, true
}

// matchWord compares a value with one word or number.
func (n *nftRule) matchWord(v value, right json.RawMessage, depth int) match {
	if all, ok := n.setElements(right); ok {
		return n.matchAny(v, all, depth)
	}
	var said any
	if json.Unmarshal(right, &said) != nil {
		return maybe
	}
	if f, ok := said.(float64); ok {
		if v.unknown || !v.isNumber {
			return maybe
		}
		return matchOf(int64(f) == v.number)
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
		return matchOf(addr == v.addr)
	case v.name:
		return matchInterface(text, "*")(Packet{Interface: v.words[0]})
	case len(v.words) > 0:
		return matchOf(slices.Contains(v.words, text))
	}
	return maybe
}

// isIn reports whether an address is in a network.
func (v value) isIn(addr string, bits int) match {
	net, err := netip.ParsePrefix(addr + "/" + strconv.Itoa(bits))
	if err != nil || !v.addr.IsValid() {
		return maybe
	}
	return matchOf(net.Contains(v.addr))
}

// isBetween reports whether a number or an address is in a range, including its ends.
func (v value) isBetween(low, high json.RawMessage) match {
	var from, to int64
	if v.isNumber && json.Unmarshal(low, &from) == nil && json.Unmarshal(high, &to) == nil {
		return matchOf(from <= v.number && v.number <= to)
	}
	var first, last netip.Addr
	if v.addr.IsValid() && json.Unmarshal(low, &first) == nil && json.Unmarshal(high, &last) == nil {
		return matchOf(first.Compare(v.addr) <= 0 && v.addr.Compare(last) <= 0)
	}
	return maybe
}
