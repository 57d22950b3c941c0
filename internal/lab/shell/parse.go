package shell

import (
	"fmt"
	"strings"
)

// A list is a sequence of commands.
type list []listItem

// A listItem is one command of a list.
type listItem struct {
	cmd        node // the command
	background bool // whether the list continues without waiting for it
}

// A node is a *simpleCommand, *pipeline, *andOrList, *group, *ifClause, *whileLoop or *forLoop.
type node any

// A simpleCommand is a command with its assignments and redirections.
type simpleCommand struct {
	assign []assignment  // assignments in front of the command
	words  []word        // name and arguments; empty for assignments alone
	redirs []redirection // redirections in the order of the script
}

// An assignment is name=value.
type assignment struct {
	name  string // name of the variable
	value word   // value before expansion
}

// A redirection is [fd]op target.
type redirection struct {
	op     string // one of < > >> >&
	fd     int    // descriptor that is redirected
	target word   // file name, or the descriptor to duplicate
}

// A pipeline is one or more commands connected by pipes.
type pipeline struct {
	cmds   []node // commands from left to right
	negate bool   // whether ! inverts the status
}

// An andOrList is commands connected by && and ||.
type andOrList struct {
	first node        // command that always runs
	rest  []andOrLink // commands that run depending on the status so far
}

// An andOrLink is an operator and the command after it.
type andOrLink struct {
	and bool // true for &&, false for ||
	cmd node // command on the right side
}

// A group is a list in braces or parentheses.
type group struct {
	body     list          // commands of the group
	subshell bool          // true for ( ), which runs in a new process
	redirs   []redirection // redirections of the whole group
}

// An ifClause is if, then and else. An elif is an ifClause in otherwise.
type ifClause struct{ cond, then, otherwise list }

// A whileLoop is a while or until loop.
type whileLoop struct {
	cond, body list // condition and body
	until      bool // whether the loop ends when the condition succeeds
}

// A forLoop is for NAME in WORDS.
type forLoop struct {
	name  string // variable of the loop
	words []word // values before expansion
	args  bool   // whether "in" is missing: the values are the positional parameters
	body  list   // commands of the loop
}

// A parser builds the syntax tree of a script by recursive descent.
type parser struct {
	tokens []token // tokens of the script
	i      int     // index of the next token
	depth  int     // nesting of lists
}

// parseScript returns the commands of a script, or a syntax error.
func parseScript(s string) (list, error) {
	x := &lexer{s: s}
	tokens, err := x.allTokens()
	if err != nil {
		return nil, err
	}
	return parseTokens(tokens, 0)
}

// parseTokens parses all of tokens. depth is the nesting of the surrounding substitutions.
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

// unexpectedToken returns a syntax error that names the next token.
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

// isOp reports whether the next token is one of the operators.
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

// isWord reports whether the next token is one of the reserved words.
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

// listEnders are the reserved words that end a list.
var listEnders = []string{"then", "else", "elif", "fi", "do", "done", "}"}

// parseList parses commands up to the end, to a ) or to a reserved word that ends a list.
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
		if !p.isOp(";", "&", "\n") { // the list ends without a separator
			return l, nil
		}
		p.i++
	}
}

// parseAndOr parses commands connected by && and ||. It returns a single command as it is.
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

// skipNewlines skips newlines where the grammar permits a line break.
func (p *parser) skipNewlines() {
	for p.isOp("\n") {
		p.i++
	}
}

// parsePipeline parses a pipeline. It returns a single command without ! as it is.
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
	if len(l.cmds) == 1 && !l.negate { // a single command
		return l.cmds[0], nil
	}
	return l, nil
}

// parseCommand parses a simple or compound command. case and functions are syntax errors: the emulated
// hosts' commands use neither.
func (p *parser) parseCommand() (node, error) {
	switch {
	case p.isOp("("): // subshell
		return p.parseGroup(func() bool { return p.isOp(")") }, true)
	case p.isWord("{"): // group in this shell
		return p.parseGroup(func() bool { return p.isWord("}") }, false)
	case p.isWord("if"): // if clause
		p.i++
		return p.parseIf()
	case p.isWord("while", "until"): // loop
		return p.parseLoop()
	case p.isWord("for"): // iteration over words
		return p.parseFor()
	case p.isWord("case", "function"):
		return nil, fmt.Errorf("syntax error: %q is not supported", p.tokens[p.i].word[0].text)
	}
	return p.parseSimple()
}

// parseGroup parses a group from its opening token on. end reports whether the next token closes it.
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

// parseSection parses a list that one of the reserved words must end. The reserved word stays the next
// token.
func (p *parser) parseSection(ends ...string) (list, error) {
	l, err := p.parseList()
	if err == nil && !p.isWord(ends...) {
		err = p.unexpectedToken()
	}
	return l, err
}

// parseIf parses what follows "if" or "elif", including "fi".
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
	case p.isWord("elif"): // a nested if clause
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

// parseLoop parses a while or until loop.
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

// parseFor parses a for loop. The name must be a valid variable name.
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
	if p.isOp(";") { // an optional separator before do
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

// parseRedirection parses an operator and its target. The default descriptor is 0 for < and 1 for the
// others.
func (p *parser) parseRedirection() (redirection, error) {
	t := p.tokens[p.i]
	p.i++
	if p.i >= len(p.tokens) || p.tokens[p.i].op != "" {
		return redirection{}, p.unexpectedToken()
	}
	r := redirection{op: t.op, fd: t.fd, target: p.tokens[p.i].word}
	if r.fd < 0 {
		r.fd = 1 // standard output
		if r.op == "<" {
			r.fd = 0 // standard input
		}
	}
	p.i++
	return r, nil
}

// parseSimple parses a simple command: words, assignments and redirections in any order. Assignments
// are recognized only in front of the first word.
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
		case t.op == "": // a word or an assignment
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

// asAssignment converts a word of the form name=value. The value is not split into fields (POSIX shell,
// section 2.9.1).
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
