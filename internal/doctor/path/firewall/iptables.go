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

// The chains of iptables that a packet for this machine goes through.
var inward = []string{"PREROUTING", "INPUT"}

// ParseSave reads what iptables-save prints. tool is that which changes those rules.
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
			r.declare(tool, table, strings.Fields(line[1:]))
		case strings.HasPrefix(line, "-A "):
			err = r.append(table, words(line))
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return r, lines.Err()
}

const maxLine = 1 << 20

// declare makes a chain of ":INPUT DROP [0:0]".
func (r *Rules) declare(tool, table string, f []string) {
	if len(f) == 0 {
		return
	}
	c := &chain{Chain: Chain{Tool: tool, Table: table, Name: f[0]}, drops: len(f) > 1 && f[1] == "DROP"}
	r.chains[c.id()] = c
	if slices.Contains(inward, c.Name) {
		r.base = append(r.base, c)
	}
}

// append adds "-A INPUT -s 10.0.0.0/8 -p tcp -m tcp --dport 22 -j ACCEPT".
func (r *Rules) append(table string, w []string) error {
	if len(w) < 2 {
		return fmt.Errorf("a rule of no chain")
	}
	c := r.chains[chainID{table: table, name: w[1]}]
	if c == nil {
		return fmt.Errorf("a rule of chain %s, which is not there", w[1])
	}
	o := options{rest: w[2:]}
	for len(o.rest) > 0 {
		o.next()
	}
	c.rules = append(c.rules, o.rule("the rule -A "+strings.Join(w[1:], " ")))
	return nil
}

// words splits a line as iptables-save quotes it.
func words(line string) (all []string) {
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

// options are those of one rule of iptables, as they are read.
type options struct {
	rest    []string
	all     []func(Packet) match
	target  string
	leap    bool
	negated bool
}

// idle are targets after which the next rule has its turn.
var idle = []string{"", "LOG", "NFLOG", "ULOG", "AUDIT", "MARK", "CONNMARK", "CT", "NOTRACK", "TCPMSS", "CHECKSUM", "CLASSIFY", "DSCP", "TOS", "TTL", "HL", "SET", "TRACE", "CONNSECMARK", "SECMARK", "MASQUERADE", "SNAT"}

// unknown are targets that may affect a packet.
var unknown = []string{"DNAT", "REDIRECT", "TPROXY", "QUEUE", "NFQUEUE", "SYNPROXY", "NETMAP", "TARPIT", "CLUSTERIP", "BPF"}

func (o *options) rule(text string) rule {
	r := rule{text: text, when: func(p Packet) match {
		met := yes
		for _, m := range o.all {
			met = met.and(m(p))
		}
		return met
	}}
	switch {
	case slices.Contains(idle, o.target):
		r.do = goOn
	case o.target == "ACCEPT":
		r.do = pass
	case o.target == "DROP" || o.target == "REJECT":
		r.do = stop
	case o.target == "RETURN":
		r.do = back
	case slices.Contains(unknown, o.target):
		r.do = unsure
	case o.leap:
		r.do, r.to = leap, o.target
	default:
		r.do, r.to = jump, o.target
	}
	return r
}

// next reads one option with its words. What is not known may be met or not.
func (o *options) next() {
	name := o.word()
	switch name {
	case "!":
		o.negated = true
		return
	case "-m", "--match":
		o.word() // the matches that use the module's options are parsed separately
	case "-j", "--jump", "-g", "--goto":
		o.target, o.leap = o.word(), name == "-g" || name == "--goto"
		o.rest = nil // options of the target: log formats, reject types
	case "--comment":
		o.word()
	case "-p", "--protocol":
		o.add(protocol(o.word()))
	case "-s", "--source":
		o.add(within(o.word(), func(p Packet) netip.Addr { return p.From }))
	case "-d", "--destination":
		o.add(within(o.word(), func(p Packet) netip.Addr { return p.To }))
	case "-i", "--in-interface":
		o.add(cameBy(o.word(), "+"))
	case "--dport", "--destination-port", "--dports", "--destination-ports":
		o.add(toPorts(o.word()))
	case "--ctstate", "--state":
		o.add(inState(o.word()))
	case "--tcp-flags":
		o.add(flagged(o.word(), o.word()))
	case "--syn":
		o.add(always(yes))
	case "--dst-type":
		o.add(always(either(o.word() == "LOCAL")))
	default:
		for len(o.rest) > 0 && !strings.HasPrefix(o.rest[0], "-") && o.rest[0] != "!" {
			o.word()
		}
		o.add(always(maybe))
	}
	o.negated = false
}

func (o *options) word() string {
	if len(o.rest) == 0 {
		return ""
	}
	w := o.rest[0]
	o.rest = o.rest[1:]
	return w
}

func (o *options) add(m func(Packet) match) {
	if o.negated {
		was := m
		m = func(p Packet) match { return was(p).not() }
	}
	o.all = append(o.all, m)
}

func always(m match) func(Packet) match { return func(Packet) match { return m } }

func protocol(name string) func(Packet) match {
	return always(either(slices.Contains([]string{"tcp", "6", "all", "0"}, name)))
}

// within is met by addresses of a network. iptables-save writes masks as lengths; what a mask with
// holes holds is not known here.
func within(text string, of func(Packet) netip.Addr) func(Packet) match {
	if addr, err := netip.ParseAddr(text); err == nil {
		return func(p Packet) match { return either(of(p) == addr) }
	}
	net, err := netip.ParsePrefix(text)
	if err != nil {
		return always(maybe)
	}
	return func(p Packet) match { return either(net.Contains(of(p))) }
}

// cameBy is met by an interface, or by those that begin as it does up to a mark.
func cameBy(name, mark string) func(Packet) match {
	begin, some := strings.CutSuffix(name, mark)
	return func(p Packet) match {
		if some {
			return either(strings.HasPrefix(p.Interface, begin))
		}
		return either(p.Interface == name)
	}
}

// toPorts is met by "22", "2000:2050" and "111,2049,5000:6000".
func toPorts(list string) func(Packet) match {
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

// inState: the packet is the first of its connection. That this is not followed at all is not known
// here; a rule that translates it is met before, and is not understood.
func inState(list string) func(Packet) match {
	states := strings.Split(list, ",")
	switch {
	case slices.Contains(states, "NEW"):
		return always(yes)
	case slices.Contains(states, "UNTRACKED"):
		return always(maybe)
	}
	return always(no)
}

// flagged: of the flags that are looked at, SYN alone is set.
func flagged(mask, set string) func(Packet) match {
	looked := strings.Split(mask, ",")
	want := "NONE"
	if slices.Contains(looked, "SYN") || mask == "ALL" {
		want = "SYN"
	}
	return always(either(set == want))
}
