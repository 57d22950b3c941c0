package shell

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"strconv"
	"strings"
)

// std is standard input, output and error.
type std struct {
	in       io.Reader
	out, err io.Writer
}

// hold marks the outputs as in use, and returns the function that ends that.
func (s std) hold() func() {
	var held []Holder
	for _, w := range []io.Writer{s.out, s.err} {
		if h, ok := w.(Holder); ok {
			h.Hold()
			held = append(held, h)
		}
	}
	return func() {
		for _, h := range held {
			h.Drop()
		}
	}
}

// noInput is /dev/null.
type noInput struct{}

func (noInput) Read([]byte) (int, error) { return 0, io.EOF }

// interp is one shell: a process with variables.
type interp struct {
	m      *Machine
	p      *Proc
	std    std
	vars   map[string]string
	args   []string // $0, $1...
	dir    string
	pid    int // $$, which subshells share
	status int // $?
	last   int // $!
	exited bool

	children map[int]*Proc // background processes
}

// Start runs a script in a new session and returns its first process.
func (m *Machine) Start(script string, in io.Reader, out, errOut io.Writer) *Proc {
	s := std{in, out, errOut}
	return m.spawn(nil, "sh", s, func(p *Proc) int {
		x := &interp{m: m, p: p, std: s, vars: map[string]string{"PATH": "/bin", "HOME": "/"}, args: []string{"sh"}, dir: "/", pid: p.PID, children: map[int]*Proc{}}
		return x.script(script)
	})
}

// script parses and runs. A syntax error is status 2.
func (x *interp) script(s string) int {
	l, err := parse(s)
	if err != nil {
		fmt.Fprintf(x.std.err, "sh: %v\n", err)
		return 2
	}
	x.list(l)
	return x.status
}

// sh is the command `sh`: with -c, or reading commands from its input.
func (x *interp) sh(c *Call) int {
	args := c.Args[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "-c" {
		args = args[1:]
	}
	child := &interp{m: x.m, p: c.Proc, std: std{c.In, unwrap(c.Out), unwrap(c.Err)}, vars: maps.Clone(x.vars), args: []string{"sh"}, dir: c.Dir, pid: c.PID, children: map[int]*Proc{}}
	if len(args) > 1 && args[0] == "-c" {
		if len(args) > 2 {
			child.args = args[2:]
		}
		return child.script(args[1])
	}
	text, err := io.ReadAll(io.LimitReader(c.In, 1<<20))
	if err != nil || len(args) > 0 {
		fmt.Fprintln(c.Err, "sh: cannot read the script")
		return statusNotFound
	}
	return child.script(string(text))
}

func (x *interp) over() bool { return x.exited || x.p.Ctx.Err() != nil }

func (x *interp) list(l list) {
	for _, it := range l {
		if x.over() {
			return
		}
		if it.background {
			x.background(it.cmd)
			continue
		}
		x.run(it.cmd)
	}
}

// fork runs a node in a new process with a copy of this shell.
func (x *interp) fork(n node, s std) *Proc {
	child := *x
	child.vars, child.std, child.children = maps.Clone(x.vars), s, map[int]*Proc{}
	return x.m.spawn(x.p, "sh", s, func(p *Proc) int {
		child.p = p
		child.only(n)
		return child.status
	})
}

// only runs the last node of a process: a simple command takes the process over, so that
// the pid the parent knows is the command's.
func (x *interp) only(n node) {
	switch n := n.(type) {
	case *simple:
		x.simple(n, true)
	case *group:
		s, closeAll, err := x.redirect(n.redirs)
		defer closeAll()
		if err != nil {
			x.complain(err)
			return
		}
		x.p.use(s)
		x.std = s
		x.list(n.body)
	default:
		x.run(n)
	}
}

func (x *interp) background(n node) {
	s := x.std
	s.in = noInput{}
	p := x.fork(n, s)
	x.children[p.PID] = p
	x.last, x.status = p.PID, 0
}

func (x *interp) run(n node) {
	switch n := n.(type) {
	case *simple:
		x.simple(n, false)
	case *pipeline:
		x.pipeline(n)
	case *chain:
		x.run(n.first)
		for _, l := range n.rest {
			if x.over() {
				return
			}
			if l.and == (x.status == 0) {
				x.run(l.cmd)
			}
		}
	case *group:
		x.group(n)
	case *branch:
		if x.list(n.cond); x.status == 0 {
			x.status = 0
			x.list(n.then)
			return
		}
		x.status = 0
		x.list(n.otherwise)
	case *loop:
		x.loop(n)
	case *each:
		x.each(n)
	}
}

func (x *interp) loop(n *loop) {
	status := 0
	for !x.over() {
		if x.list(n.cond); (x.status == 0) == n.until || x.over() {
			break
		}
		x.list(n.body)
		status = x.status
	}
	if !x.exited {
		x.status = status
	}
}

func (x *interp) each(n *each) {
	values := x.args[1:]
	if !n.args {
		values = nil
		for _, w := range n.words {
			values = append(values, x.names(w)...)
		}
	}
	x.status = 0
	for _, v := range values {
		if x.over() {
			return
		}
		x.vars[n.name] = v
		x.list(n.body)
	}
}

func (x *interp) pipeline(n *pipeline) {
	var procs []*Proc
	in := x.std.in
	for i, cmd := range n.cmds {
		s := std{in: in, out: x.std.out, err: x.std.err}
		var pw *io.PipeWriter
		if i < len(n.cmds)-1 {
			var pr *io.PipeReader
			pr, pw = io.Pipe()
			s.out, in = pw, pr
		}
		p := x.fork(cmd, s)
		procs = append(procs, p)
		reader, _ := s.in.(*io.PipeReader)
		x.m.running.Go(func() {
			<-p.done
			if pw != nil {
				_ = pw.Close() // never fails
			}
			if reader != nil {
				_ = reader.Close() // never fails
			}
		})
	}
	for _, p := range procs {
		x.status = x.p.wait(p)
	}
	if n.negate {
		x.status = map[bool]int{true: 1, false: 0}[x.status == 0]
	}
}

func (x *interp) group(n *group) {
	s, closeAll, err := x.redirect(n.redirs)
	defer closeAll()
	if err != nil {
		x.complain(err)
		return
	}
	if n.subshell {
		x.status = x.p.wait(x.fork(&group{body: n.body}, s))
		return
	}
	outer := x.std
	x.std = s
	x.list(n.body)
	x.std = outer
}

func (x *interp) complain(err error) {
	fmt.Fprintf(x.std.err, "sh: %v\n", err)
	x.status = 1
}

// redirect opens what the redirections name.
func (x *interp) redirect(redirs []redir) (s std, closeAll func(), err error) {
	s = x.std
	var open []io.Closer
	closeAll = func() {
		for _, c := range open {
			_ = c.Close() // the writes have been answered for
		}
	}
	for _, r := range redirs {
		name := strings.Join(x.expand(r.target), " ")
		switch {
		case r.op == ">&" && name == "1":
			s.err = s.out
		case r.op == ">&" && name == "2":
			s.out = s.err
		case r.op == ">&" || r.fd > 2:
			return s, closeAll, fmt.Errorf("bad file descriptor: %s", name)
		case name == "/dev/null":
			s.set(r.fd, noInput{}, io.Discard)
		default:
			mode := map[string]Mode{"<": Read, ">": Write, ">>": Append}[r.op]
			f, err := x.m.Open(x.abs(name), mode)
			if err != nil {
				verb := map[bool]string{true: "open", false: "create"}[mode == Read]
				return s, closeAll, fmt.Errorf("can't %s %s: %w", verb, name, err)
			}
			open = append(open, f)
			s.set(r.fd, f, f)
		}
	}
	return s, closeAll, nil
}

func (s *std) set(fd int, in io.Reader, out io.Writer) {
	switch fd {
	case 0:
		s.in = in
	case 1:
		s.out = out
	case 2:
		s.err = out
	}
}

func (x *interp) abs(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(x.dir, name)
}

// simple runs one command. inPlace replaces the shell's process with it.
func (x *interp) simple(n *simple, inPlace bool) {
	args := []string{}
	for _, w := range n.words {
		args = append(args, x.names(w)...)
	}
	s, closeAll, err := x.redirect(n.redirs)
	if err == nil && len(args) == 1 && args[0] == "exec" {
		x.p.use(s)
		x.std = s // the files stay open from now on
		return
	}
	defer closeAll()
	if err != nil {
		x.complain(err)
		return
	}
	for _, a := range n.assign {
		x.vars[a.name] = strings.Join(x.expand(a.value), " ")
	}
	if len(args) == 0 {
		return
	}
	if args[0] == "exec" && len(args) > 1 {
		args, inPlace, x.exited = args[1:], true, true
	}
	if x.builtin(args, s) {
		return
	}
	if inPlace {
		x.p.use(s)
		x.status = x.external(x.p, args, s)
		return
	}
	x.status = x.p.wait(x.m.spawn(x.p, args[0], s, func(p *Proc) int { return x.external(p, args, s) }))
}

func (x *interp) external(p *Proc, args []string, s std) int {
	c := &Call{Proc: p, Args: args, In: s.in, Out: &brokenPipe{s.out, p}, Err: &brokenPipe{s.err, p}, Dir: x.dir}
	p.m.mu.Lock()
	p.name = args[0]
	p.m.mu.Unlock()
	return x.dispatch(c)
}

// dispatch runs what needs the shell, or leaves it to the machine.
func (x *interp) dispatch(c *Call) int {
	switch name := baseName(c.Args[0]); {
	case name == "sh":
		return x.sh(c)
	case name == "setsid" || name == "nohup":
		if name == "setsid" {
			c.Detach()
		} else {
			c.IgnoreHangup()
		}
		next := *c
		if next.Args = c.Args[1:]; len(next.Args) == 0 {
			fmt.Fprintf(c.Err, "%s: no command\n", name)
			return 1
		}
		return x.dispatch(&next)
	}
	return x.m.run(c)
}

// builtin runs what changes the shell itself.
func (x *interp) builtin(args []string, s std) bool {
	status := 0
	switch args[0] {
	case ":", "true", "set", "trap", "umask", "export":
		for _, a := range args[1:] {
			if name, value, ok := strings.Cut(a, "="); ok && args[0] == "export" {
				x.vars[name] = value
			}
		}
	case "false":
		status = 1
	case "exit":
		x.exited = true
		status = x.status
		if len(args) > 1 {
			status, _ = strconv.Atoi(args[1]) // 0 if it is no number
		}
	case "shift":
		status = x.shift(args[1:], s)
	case "cd":
		status = x.cd(args[1:], s)
	case "wait":
		status = x.waitFor(args[1:])
	case "eval":
		x.script2(strings.Join(args[1:], " "))
		status = x.status
	case "echo":
		x.echo(args[1:], s)
	case "command":
		if status = statusNotFound; len(args) == 3 && args[1] == "-v" && x.known(args[2]) {
			status = 0
			fmt.Fprintln(s.out, "/bin/"+args[2])
		}
	default:
		return false
	}
	x.status = status
	return true
}

// cd changes to a folder that is there.
func (x *interp) cd(args []string, s std) int {
	to := "/"
	if len(args) > 0 {
		to = x.abs(args[0])
	}
	if x.m.IsDir != nil && !x.m.IsDir(to) {
		fmt.Fprintf(s.err, "sh: cd: can't cd to %s\n", to)
		return 1
	}
	x.dir = to
	return 0
}

// shift drops the first arguments.
func (x *interp) shift(args []string, s std) int {
	n := 1
	if len(args) > 0 {
		n, _ = strconv.Atoi(args[0]) // 0 if it is no number
	}
	if n < 0 || n > len(x.args)-1 {
		fmt.Fprintln(s.err, "sh: shift: bad number")
		return 1
	}
	x.args = append([]string{x.args[0]}, x.args[1+n:]...)
	return 0
}

// script2 runs a script in this shell.
func (x *interp) script2(s string) {
	l, err := parse(s)
	if err != nil {
		x.complain(err)
		return
	}
	x.list(l)
}

func (x *interp) known(name string) bool {
	switch name {
	case "sh", "setsid", "nohup", "echo", "cd", "exit", "wait", "true", "false":
		return true
	}
	return x.m.Commands[name] != nil
}

func (x *interp) echo(args []string, s std) {
	end := "\n"
	if len(args) > 0 && args[0] == "-n" {
		args, end = args[1:], ""
	}
	if _, err := io.WriteString(s.out, strings.Join(args, " ")+end); err != nil {
		x.p.kill(&errSignal{PIPE})
	}
}

func (x *interp) waitFor(pids []string) (status int) {
	if len(pids) == 0 {
		for _, p := range x.children {
			x.p.wait(p)
		}
		return 0
	}
	for _, s := range pids {
		pid, _ := strconv.Atoi(s) // no child has pid 0
		p := x.children[pid]
		if p == nil {
			return statusNotFound
		}
		status = x.p.wait(p)
	}
	return status
}

// expand makes fields of a word.
func (x *interp) expand(w word) []string {
	var fields []string
	var cur strings.Builder
	began := false
	for _, p := range w {
		if p.param && p.text == "@" && p.quoted {
			for i, a := range x.args[1:] {
				if i > 0 {
					fields = append(fields, cur.String())
					cur.Reset()
				}
				cur.WriteString(a)
				began = true
			}
			continue
		}
		text, literal := x.value(p)
		if p.quoted || literal {
			cur.WriteString(text)
			began = began || p.quoted || text != ""
			continue
		}
		for i, f := range splitFields(text) {
			if i > 0 && began {
				fields = append(fields, cur.String())
				cur.Reset()
				began = false
			}
			cur.WriteString(f)
			began = began || f != ""
		}
	}
	if began {
		fields = append(fields, cur.String())
	}
	return fields
}

// splitFields splits at white space; an empty first or last field marks white space there.
func splitFields(s string) []string {
	f := strings.Fields(s)
	if s == "" || len(f) == 0 {
		return nil
	}
	if strings.ContainsRune(" \t\n", rune(s[0])) {
		f = append([]string{""}, f...)
	}
	if strings.ContainsRune(" \t\n", rune(s[len(s)-1])) {
		f = append(f, "")
	}
	return f
}

// value returns the text of a part, and whether it stood there literally.
func (x *interp) value(p part) (text string, literal bool) {
	switch {
	case p.subst != nil:
		return x.capture(p.subst), false
	case !p.param:
		return p.text, true
	}
	switch p.text {
	case "?":
		return strconv.Itoa(x.status), false
	case "$":
		return strconv.Itoa(x.pid), false
	case "!":
		if x.last == 0 {
			return "", false
		}
		return strconv.Itoa(x.last), false
	case "#":
		return strconv.Itoa(len(x.args) - 1), false
	case "@", "*":
		return strings.Join(x.args[1:], " "), false
	}
	if n, err := strconv.Atoi(p.text); err == nil {
		if n < len(x.args) {
			return x.args[n], false
		}
		return "", false
	}
	return x.vars[p.text], false
}

// capture runs $(...) and returns its output without the newlines at its end.
func (x *interp) capture(l list) string {
	pr, pw := io.Pipe()
	s := x.std
	s.out = pw
	p := x.fork(&group{body: l}, s)
	x.m.running.Go(func() {
		<-p.done
		_ = pw.Close() // never fails
	})
	var buf bytes.Buffer
	_, err := io.Copy(&buf, io.LimitReader(pr, 1<<20))
	_ = pr.Close() // never fails
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return ""
	}
	x.status = x.p.wait(p)
	return strings.TrimRight(buf.String(), "\n")
}

// baseName is the command behind a path: /bin/cat is cat.
func baseName(s string) string { return path.Base(s) }
