package shell

import (
	"fmt"
	"strings"
)

// A list is commands one after the other, some of them in the background.
type list []listItem

type listItem struct {
	cmd        node
	background bool
}

// A node is a *simple, *pipeline, *chain, *group, *branch, *loop or *each.
type node any

// A simple is one command with its redirections.
type simpleCommand struct {
	assign []assignment
	words  []word
	redirs []redirection
}

type assignment struct {
	name  string
	value word
}

// A redir is [fd]op target.
type redirection struct {
	op     string
	fd     int
	target word
}

type pipeline struct {
	cmds   []node
	negate bool
}

// A chain is commands with && and || between them.
type andOrList struct {
	first node
	rest  []andOrLink
}

type andOrLink struct {
	and bool
	cmd node
}

// A group is { } or ( ).
type group struct {
	body     list
	subshell bool
	redirs   []redirection
}

type ifClause struct{ cond, then, otherwise list }

type whileLoop struct {
	cond, body list
	until      bool
}

// An each is for NAME in WORDS; args means that the in is missing: it iterates over the arguments.
type forLoop struct {
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

// parseScript reads a script.
func parseScript(s string) (list, error) {
	x := &lexer{s: s}
	tokens, err := x.allTokens()
	if err != nil {
		return nil, err
	}
	return parseTokens(tokens, 0)
}

func parseTokens(tokens []token, depth int) (list, error) {
	p := &parser{tokens: tokens, depth: depth}
	l, err := p.parseList()
	if err == nil && p.i < len(tokens) {
		err = p.unexpectedToken()
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (p *parser) unexpectedToken() error {
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
		if p.tokens[p.i].word.isReserved(w) {
			return true
		}
	}
	return false
}

// enders are the reserved words that end a list.
var listEnders = []string{"then", "else", "elif", "fi", "do", "done", "}"}

// parseList reads commands up to the end, a ) or a reserved word that ends one.
func (p *parser) parseList() (l list, err error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errDeep
	}
	defer func() { p.depth-- }()
	for {
		for p.isOp("\n") {
			p.i++
		}
		if p.i >= len(p.tokens) || p.isOp(")") || p.isWord(listEnders...) {
			return l, nil
		}
		cmd, err := p.parseAndOr()
		if err != nil {
			return nil, err
		}
		it := listItem{cmd: cmd, background: p.isOp("&")}
		l = append(l, it)
		if !p.isOp(";", "&", "\n") {
			return l, nil
		}
		p.i++
	}
}

func (p *parser) parseAndOr() (node, error) {
	first, err := p.parsePipeline()
	if err != nil || !p.isOp("&&", "||") {
		return first, err
	}
	c := &andOrList{first: first}
	for p.isOp("&&", "||") {
		and := p.isOp("&&")
		p.i++
		p.skipNewlines()
		cmd, err := p.parsePipeline()
		if err != nil {
			return nil, err
		}
		c.rest = append(c.rest, andOrLink{and, cmd})
	}
	return c, nil
}

func (p *parser) skipNewlines() {
	for p.isOp("\n") {
		p.i++
	}
}

func (p *parser) parsePipeline() (node, error) {
	l := &pipeline{}
	if p.isWord("!") {
		l.negate = true
		p.i++
	}
	for {
		cmd, err := p.parseCommand()
		if err != nil {
			return nil, err
		}
		l.cmds = append(l.cmds, cmd)
		if !p.isOp("|") {
			break
		}
		p.i++
		p.skipNewlines()
	}
	if len(l.cmds) == 1 && !l.negate {
		return l.cmds[0], nil
	}
	return l, nil
}

func (p *parser) parseCommand() (node, error) {
	switch {
	case p.isOp("("):
		return p.parseGroup(func() bool { return p.isOp(")") }, true)
	case p.isWord("{"):
		return p.parseGroup(func() bool { return p.isWord("}") }, false)
	case p.isWord("if"):
		p.i++
		return p.parseIf()
	case p.isWord("while", "until"):
		return p.parseLoop()
	case p.isWord("for"):
		return p.parseFor()
	case p.isWord("case", "function"):
		return nil, fmt.Errorf("syntax error: %q is not supported", p.tokens[p.i].word[0].text)
	}
	return p.parseSimple()
}

func (p *parser) parseGroup(end func() bool, subshell bool) (node, error) {
	p.i++
	body, err := p.parseList()
	if err != nil {
		return nil, err
	}
	if !end() {
		return nil, p.unexpectedToken()
	}
	p.i++
	g := &group{body: body, subshell: subshell}
	for p.isOp("<", ">", ">>", ">&") {
		r, err := p.parseRedirection()
		if err != nil {
			return nil, err
		}
		g.redirs = append(g.redirs, r)
	}
	return g, nil
}

// parseSection reads a list that this reserved word ends.
func (p *parser) parseSection(ends ...string) (list, error) {
	l, err := p.parseList()
	if err == nil && !p.isWord(ends...) {
		err = p.unexpectedToken()
	}
	return l, err
}

// parseIf reads on after "if" or "elif".
func (p *parser) parseIf() (node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errDeep
	}
	defer func() { p.depth-- }()
	b := &ifClause{}
	var err error
	if b.cond, err = p.parseSection("then"); err != nil {
		return nil, err
	}
	p.i++
	if b.then, err = p.parseSection("elif", "else", "fi"); err != nil {
		return nil, err
	}
	switch {
	case p.isWord("elif"):
		p.i++
		nested, err := p.parseIf()
		b.otherwise = list{{cmd: nested}}
		return b, err
	case p.isWord("else"):
		p.i++
		if b.otherwise, err = p.parseSection("fi"); err != nil {
			return nil, err
		}
	}
	p.i++
	return b, nil
}

func (p *parser) parseLoop() (node, error) {
	l := &whileLoop{until: p.isWord("until")}
	p.i++
	var err error
	if l.cond, err = p.parseSection("do"); err != nil {
		return nil, err
	}
	p.i++
	if l.body, err = p.parseSection("done"); err != nil {
		return nil, err
	}
	p.i++
	return l, nil
}

func (p *parser) parseFor() (node, error) {
	p.i++
	if p.i >= len(p.tokens) || p.tokens[p.i].op != "" || len(p.tokens[p.i].word) != 1 || !isName(p.tokens[p.i].word[0].text) {
		return nil, p.unexpectedToken()
	}
	n := &forLoop{name: p.tokens[p.i].word[0].text, args: true}
	p.i++
	p.skipNewlines()
	if p.isWord("in") {
		n.args = false
		for p.i++; p.i < len(p.tokens) && p.tokens[p.i].op == ""; p.i++ {
			n.words = append(n.words, p.tokens[p.i].word)
		}
	}
	if p.isOp(";") {
		p.i++
	}
	p.skipNewlines()
	if !p.isWord("do") {
		return nil, p.unexpectedToken()
	}
	p.i++
	var err error
	if n.body, err = p.parseSection("done"); err != nil {
		return nil, err
	}
	p.i++
	return n, nil
}

func (p *parser) parseRedirection() (redirection, error) {
	t := p.tokens[p.i]
	p.i++
	if p.i >= len(p.tokens) || p.tokens[p.i].op != "" {
		return redirection{}, p.unexpectedToken()
	}
	r := redirection{op: t.op, fd: t.fd, target: p.tokens[p.i].word}
	if r.fd < 0 {
		r.fd = 1
		if r.op == "<" {
			r.fd = 0
		}
	}
	p.i++
	return r, nil
}

func (p *parser) parseSimple() (node, error) {
	c := &simpleCommand{}
	for p.i < len(p.tokens) {
		switch t := p.tokens[p.i]; {
		case p.isOp("<", ">", ">>", ">&"):
			r, err := p.parseRedirection()
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
				return nil, p.unexpectedToken()
			}
			return c, nil
		}
	}
	if len(c.words)+len(c.assign)+len(c.redirs) == 0 {
		return nil, p.unexpectedToken()
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
