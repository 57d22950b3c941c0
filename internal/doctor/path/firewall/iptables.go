package firewall

import (
	"bufio"
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// inboundChains lists the built-in chains of iptables that packets to this machine
// pass.
var inboundChains = []string{"PREROUTING", "INPUT"}

// ParseSave parses the output of iptables-save. tool is the command that changes these
// rules.
func ParseSave(listing []byte, tool string) (*Rules, error) {
	r := &Rules{chains: map[chainID]*chain{}}
	table := ""
	lines := bufio.NewScanner(bytes.NewReader(listing))
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		var err error
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":"):
			r.addChain(tool, table, strings.Fields(line[1:]))
		case strings.HasPrefix(line, "-A "):
			err = r.addRule(table, splitWords(line))
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return r, lines.Err()
}

// maxLine limits the length of a line, in bytes.
const maxLine = 1 << 20

// addChain adds a chain from a line such as ":INPUT DROP [0:0]".
func (r *Rules) addChain(tool, table string, f []string) {
	if len(f) == 0 {
		return
	}
	c := &chain{Chain: Chain{Tool: tool, Table: table, Name: f[0]}, drops: len(f) > 1 && f[1] == "DROP"}
	r.chains[c.id()] = c
	if slices.Contains(inboundChains, c.Name) {
		r.base = append(r.base, c)
	}
}

// addRule adds a rule such as "-A INPUT -s 10.0.0.0/8 -p tcp -m tcp --dport 22 -j
// ACCEPT".
func (r *Rules) addRule(table string, w []string) error {
	if len(w) < 2 {
		return fmt.Errorf("a rule without a chain")
	}
	c := r.chains[chainID{table: table, name: w[1]}]
	if c == nil {
		return fmt.Errorf("a rule of chain %s, which does not exist", w[1])
	}
	o := options{rest: w[2:]}
	// Each call consumes at least one word.
	for len(o.rest) > 0 {
		o.parseOption()
	}
	c.rules = append(c.rules, o.toRule("the rule -A "+strings.Join(w[1:], " ")))
	return nil
}

// splitWords splits a line with the quotes and escapes of iptables-save.
func splitWords(line string) (all []string) {
	var w strings.Builder
	quoted, any := false, false
	flush := func() {
		if any {
			all = append(all, w.String())
			w.Reset()
			any = false
		}
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && quoted && i+1 < len(line):
			i++
			w.WriteByte(line[i])
		case c == '"':
			quoted, any = !quoted, true
		case c == ' ' && !quoted:
			flush()
		default:
			w.WriteByte(c)
			any = true
		}
	}
	flush()
	return all
}

// options parses the options of one rule of iptables.
type options struct {
	rest    []string             // words not parsed yet
	all     []func(Packet) match // conditions so far
	target  string               // target of -j or -g; empty if none
	leap    bool                 // true for -g
	negated bool                 // true after "!", for the next option
}

// idleTargets lists the targets after which evaluation continues with the next rule.
var idleTargets = []string{"", "LOG", "NFLOG", "ULOG", "AUDIT", "MARK", "CONNMARK", "CT", "NOTRACK", "TCPMSS", "CHECKSUM", "CLASSIFY", "DSCP", "TOS", "TTL", "HL", "SET", "TRACE", "CONNSECMARK", "SECMARK", "MASQUERADE", "SNAT"}

// unknownTargets lists the targets with an effect that this package does not evaluate.
var unknownTargets = []string{"DNAT", "REDIRECT", "TPROXY", "QUEUE", "NFQUEUE", "SYNPROXY", "NETMAP", "TARPIT", "CLUSTERIP", "BPF"}

// toRule returns the parsed rule. text describes it in messages. The packet must meet
// all conditions.
func (o *options) toRule(text string) rule {
	r := rule{text: text, when: func(p Packet) match {
		met := yes
		for _, m := range o.all {
			met = met.and(m(p))
		}
		return met
	}}
	switch {
	case slices.Contains(idleTargets, o.target):
		r.do = continueAction
	case o.target == "ACCEPT":
		r.do = acceptAction
	case o.target == "DROP" || o.target == "REJECT":
		r.do = dropAction
	case o.target == "RETURN":
		r.do = returnAction
	case slices.Contains(unknownTargets, o.target):
		r.do = unsureAction
	case o.leap:
		r.do, r.to = gotoChain, o.target
	default:
		r.do, r.to = jumpChain, o.target
	}
	return r
}

// parseOption parses one option with its arguments. The result of an unknown option is
// maybe.
func (o *options) parseOption() {
	name := o.nextWord()
	switch name {
	case "!":
		o.negated = true
		return
	case "-m", "--match":
		o.nextWord() // the matches that use the module's options are parsed separately
	case "-j", "--jump", "-g", "--goto":
		o.target, o.leap = o.nextWord(), name == "-g" || name == "--goto"
		o.rest = nil // options of the target: log formats, reject types
	case "--comment":
		o.nextWord()
	case "-p", "--protocol":
		o.addMatch(matchProtocol(o.nextWord()))
	case "-s", "--source":
		o.addMatch(matchNetwork(o.nextWord(), func(p Packet) netip.Addr { return p.From }))
	case "-d", "--destination":
		o.addMatch(matchNetwork(o.nextWord(), func(p Packet) netip.Addr { return p.To }))
	case "-i", "--in-interface":
		o.addMatch(matchInterface(o.nextWord(), "+"))
	case "--dport", "--destination-port", "--dports", "--destination-ports":
		o.addMatch(matchPorts(o.nextWord()))
	case "--ctstate", "--state":
		o.addMatch(matchState(o.nextWord()))
	case "--tcp-flags":
		o.addMatch(matchFlags(o.nextWord(), o.nextWord()))
	case "--syn":
		o.addMatch(always(yes))
	case "--dst-type":
		o.addMatch(always(matchOf(o.nextWord() == "LOCAL")))
	default:
		for len(o.rest) > 0 && !strings.HasPrefix(o.rest[0], "-") && o.rest[0] != "!" {
			o.nextWord()
		}
		o.addMatch(always(maybe))
	}
	o.negated = false
}

// nextWord removes and returns the next word, or "" at the end.
func (o *options) nextWord() string {
	if len(o.rest) == 0 {
		return ""
	}
	w := o.rest[0]
	o.rest = o.rest[1:]
	return w
}

// addMatch adds a condition, negated after "!".
func (o *options) addMatch(m func(Packet) match) {
	if o.negated {
		// "!" applies to the next condition only.
		was := m
		m = func(p Packet) match { return was(p).not() }
	}
	o.all = append(o.all, m)
}

// always returns a condition with a constant result.
func always(m match) func(Packet) match { return func(Packet) match { return m } }

// matchProtocol returns a condition on the protocol, which is always TCP.
func matchProtocol(name string) func(Packet) match {
	return always(matchOf(slices.Contains([]string{"tcp", "6", "all", "0"}, name)))
}

// matchNetwork returns a condition on an address. iptables-save prints masks as prefix
// lengths; the result for another mask is maybe.
func matchNetwork(text string, of func(Packet) netip.Addr) func(Packet) match {
	if addr, err := netip.ParseAddr(text); err == nil {
		return func(p Packet) match { return matchOf(of(p) == addr) }
	}
	net, err := netip.ParsePrefix(text)
	if err != nil {
		return always(maybe)
	}
	return func(p Packet) match { return matchOf(net.Contains(of(p))) }
}

// matchInterface returns a condition on the interface. A name that ends with mark is a
// prefix.
func matchInterface(name, mark string) func(Packet) match {
	begin, some := strings.CutSuffix(name, mark)
	return func(p Packet) match {
		if some {
			return matchOf(strings.HasPrefix(p.Interface, begin))
		}
		return matchOf(p.Interface == name)
	}
}

// matchPorts returns a condition on the destination port, for lists such as "22",
// "2000:2050" and "111,2049,5000:6000".
func matchPorts(list string) func(Packet) match {
	return func(p Packet) match {
		for part := range strings.SplitSeq(list, ",") {
			from, to, span := strings.Cut(part, ":")
			if !span {
				to = from
			}
			low, err1 := strconv.ParseUint(from, 10, 16)
			high, err2 := strconv.ParseUint(to, 10, 16)
			if err1 != nil || err2 != nil {
				return maybe
			}
			if uint64(p.Port) >= low && uint64(p.Port) <= high {
				return yes
			}
		}
		return no
	}
}

// matchState returns a condition on the state of the connection, which is NEW. A
// connection that is not tracked is UNTRACKED; the rules that cause it are not
// understood.
func matchState(list string) func(Packet) match {
	states := strings.Split(list, ",")
	switch {
	case slices.Contains(states, "NEW"):
		return always(yes)
	case slices.Contains(states, "UNTRACKED"):
		return always(maybe)
	}
	return always(no)
}

// matchFlags returns a condition on TCP flags. Of the flags in mask, only SYN is set.
func matchFlags(mask, set string) func(Packet) match {
	looked := strings.Split(mask, ",")
	want := "NONE"
	if slices.Contains(looked, "SYN") || mask == "ALL" {
		want = "SYN"
	}
	return always(matchOf(set == want))
}
