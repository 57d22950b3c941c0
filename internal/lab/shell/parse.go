package shell

import (
	"fmt"
	"strings"
)

// A list is commands one after the other, some of them in the background.
type list []item

type item struct {
	cmd        node
	background bool
}

// A node is a *simple, *pipeline, *chain, *group, *branch, *loop or *each.
type node any

// A simple is one command with its redirections.
type simple struct {
	assign []assignment
	words  []word
	redirs []redir
}

type assignment struct {
	name  string
	value word
}

// A redir is [fd]op target.
type redir struct {
	op     string
	fd     int
	target word
}

type pipeline struct {
	cmds   []node
	negate bool
}

// A chain is commands with && and || between them.
type chain struct {
	first node
	rest  []link
}

type link struct {
	and bool
	cmd node
}

// A group is { } or ( ).
type group struct {
	body     list
	subshell bool
	redirs   []redir
}

type branch struct{ cond, then, otherwise list }

type loop struct {
	cond, body list
	until      bool
}

// An each is for NAME in WORDS; args means that the in is missing: it iterates over the arguments.
type each struct {
	name  string
	words []word
	args  bool
	body  list
}

type parser struct {
	tokens []token
	i      int
	depth  int
}

// parse reads a script.
func parse(s string) (list, error) {
	x := &lexer{s: s}
	tokens, err := x.all()
	if err != nil {
		return nil, err
	}
	return parseTokens(tokens, 0)
}

func parseTokens(tokens []token, depth int) (list, error) {
	p := &parser{tokens: tokens, depth: depth}
	l, err := p.list()
	if err == nil && p.i < len(tokens) {
		err = p.unexpected()
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (p *parser) unexpected() error {
	if p.i >= len(p.tokens) {
		return fmt.Errorf("syntax error: unexpected end of file")
	}
	t := p.tokens[p.i]
	if t.op == "" {
		t.op = "word"
		for _, part := range p.tokens[p.i].word {
			t.op = part.text
		}
	}
	return fmt.Errorf("syntax error: unexpected %q", t.op)
}

func (p *parser) isOp(ops ...string) bool {
	if p.i >= len(p.tokens) {
		return false
	}
	for _, op := range ops {
		if p.tokens[p.i].op == op {
			return true
		}
	}
	return false
}

func (p *parser) isWord(words ...string) bool {
	if p.i >= len(p.tokens) || p.tokens[p.i].op != "" {
		return false
	}
	for _, w := range words {
		if p.tokens[p.i].word.plain(w) {
			return true
		}
	}
	return false
}

// enders are the reserved words that end a list.
var enders = []string{"then", "else", "elif", "fi", "do", "done", "}"}

// list reads commands up to the end, a ) or a reserved word that ends one.
func (p *parser) list() (l list, err error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errDeep
	}
	defer func() { p.depth-- }()
	for {
		for p.isOp("\n") {
			p.i++
		}
		if p.i >= len(p.tokens) || p.isOp(")") || p.isWord(enders...) {
			return l, nil
		}
		cmd, err := p.chain()
		if err != nil {
			return nil, err
		}
		it := item{cmd: cmd, background: p.isOp("&")}
		l = append(l, it)
		if !p.isOp(";", "&", "\n") {
			return l, nil
		}
		p.i++
	}
}

func (p *parser) chain() (node, error) {
	first, err := p.pipeline()
	if err != nil || !p.isOp("&&", "||") {
		return first, err
	}
	c := &chain{first: first}
	for p.isOp("&&", "||") {
		and := p.isOp("&&")
		p.i++
		p.newlines()
		cmd, err := p.pipeline()
		if err != nil {
			return nil, err
		}
		c.rest = append(c.rest, link{and, cmd})
	}
	return c, nil
}

func (p *parser) newlines() {
	for p.isOp("\n") {
		p.i++
	}
}

func (p *parser) pipeline() (node, error) {
	l := &pipeline{}
	if p.isWord("!") {
		l.negate = true
		p.i++
	}
	for {
		cmd, err := p.command()
		if err != nil {
			return nil, err
		}
		l.cmds = append(l.cmds, cmd)
		if !p.isOp("|") {
			break
		}
		p.i++
		p.newlines()
	}
	if len(l.cmds) == 1 && !l.negate {
		return l.cmds[0], nil
	}
	return l, nil
}

func (p *parser) command() (node, error) {
	switch {
	case p.isOp("("):
		return p.group(func() bool { return p.isOp(")") }, true)
	case p.isWord("{"):
		return p.group(func() bool { return p.isWord("}") }, false)
	case p.isWord("if"):
		p.i++
		return p.branch()
	case p.isWord("while", "until"):
		return p.loop()
	case p.isWord("for"):
		return p.each()
	case p.isWord("case", "function"):
		return nil, fmt.Errorf("syntax error: %q is not supported", p.tokens[p.i].word[0].text)
	}
	return p.simple()
}

func (p *parser) group(end func() bool, subshell bool) (node, error) {
	p.i++
	body, err := p.list()
	if err != nil {
		return nil, err
	}
	if !end() {
		return nil, p.unexpected()
	}
	p.i++
	g := &group{body: body, subshell: subshell}
	for p.isOp("<", ">", ">>", ">&") {
		r, err := p.redir()
		if err != nil {
			return nil, err
		}
		g.redirs = append(g.redirs, r)
	}
	return g, nil
}

// section reads a list that this reserved word ends.
func (p *parser) section(ends ...string) (list, error) {
	l, err := p.list()
	if err == nil && !p.isWord(ends...) {
		err = p.unexpected()
	}
	return l, err
}

// branch reads on after "if" or "elif".
func (p *parser) branch() (node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errDeep
	}
	defer func() { p.depth-- }()
	b := &branch{}
	var err error
	if b.cond, err = p.section("then"); err != nil {
		return nil, err
	}
	p.i++
	if b.then, err = p.section("elif", "else", "fi"); err != nil {
		return nil, err
	}
	switch {
	case p.isWord("elif"):
		p.i++
		nested, err := p.branch()
		b.otherwise = list{{cmd: nested}}
		return b, err
	case p.isWord("else"):
		p.i++
		if b.otherwise, err = p.section("fi"); err != nil {
			return nil, err
		}
	}
	p.i++
	return b, nil
}

func (p *parser) loop() (node, error) {
	l := &loop{until: p.isWord("until")}
	p.i++
	var err error
	if l.cond, err = p.section("do"); err != nil {
		return nil, err
	}
	p.i++
	if l.body, err = p.section("done"); err != nil {
		return nil, err
	}
	p.i++
	return l, nil
}

func (p *parser) each() (node, error) {
	p.i++
	if p.i >= len(p.tokens) || p.tokens[p.i].op != "" || len(p.tokens[p.i].word) != 1 || !isName(p.tokens[p.i].word[0].text) {
		return nil, p.unexpected()
	}
	n := &each{name: p.tokens[p.i].word[0].text, args: true}
	p.i++
	p.newlines()
	if p.isWord("in") {
		n.args = false
		for p.i++; p.i < len(p.tokens) && p.tokens[p.i].op == ""; p.i++ {
			n.words = append(n.words, p.tokens[p.i].word)
		}
	}
	if p.isOp(";") {
		p.i++
	}
	p.newlines()
	if !p.isWord("do") {
		return nil, p.unexpected()
	}
	p.i++
	var err error
	if n.body, err = p.section("done"); err != nil {
		return nil, err
	}
	p.i++
	return n, nil
}

func (p *parser) redir() (redir, error) {
	t := p.tokens[p.i]
	p.i++
	if p.i >= len(p.tokens) || p.tokens[p.i].op != "" {
		return redir{}, p.unexpected()
	}
	r := redir{op: t.op, fd: t.fd, target: p.tokens[p.i].word}
	if r.fd < 0 {
		r.fd = 1
		if r.op == "<" {
			r.fd = 0
		}
	}
	p.i++
	return r, nil
}

func (p *parser) simple() (node, error) {
	c := &simple{}
	for p.i < len(p.tokens) {
		switch t := p.tokens[p.i]; {
		case p.isOp("<", ">", ">>", ">&"):
			r, err := p.redir()
			if err != nil {
				return nil, err
			}
			c.redirs = append(c.redirs, r)
		case t.op == "":
			if a, ok := asAssignment(t.word); ok && len(c.words) == 0 {
				c.assign = append(c.assign, a)
			} else {
				c.words = append(c.words, t.word)
			}
			p.i++
		default:
			if len(c.words)+len(c.assign)+len(c.redirs) == 0 {
				return nil, p.unexpected()
			}
			return c, nil
		}
	}
	if len(c.words)+len(c.assign)+len(c.redirs) == 0 {
		return nil, p.unexpected()
	}
	return c, nil
}

func asAssignment(w word) (a assignment, ok bool) {
	if len(w) == 0 || w[0].quoted || w[0].param || w[0].subst != nil {
		return a, false
	}
	name, value, found := strings.Cut(w[0].text, "=")
	if !found || !isName(name) {
		return a, false
	}
	rest := append(word{{text: value, quoted: true}}, w[1:]...)
	return assignment{name, rest}, true
}
