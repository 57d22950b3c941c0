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

// std contains the standard streams of a process or a command.
type std struct {
	in       io.Reader // standard input
	out, err io.Writer // standard output and standard error
}

// holdOutputs marks the outputs as in use, so that a session stays open. It returns the function that
// ends the use; it must be called once.
func (s std) holdOutputs() func() {
	var held []SharedOutput
	for _, w := range []io.Writer{s.out, s.err} {
		if h, ok := w.(SharedOutput); ok {
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

// noInput is /dev/null as an input.
type noInput struct{}

// Read returns io.EOF.
func (noInput) Read([]byte) (int, error) { return 0, io.EOF }

// interp is the state of one shell: its process, variables and streams. It belongs to one goroutine,
// that of its process.
type interp struct {
	m      *Machine          // files and commands
	p      *Proc             // process in which the shell runs
	std    std               // current streams; redirections change them
	vars   map[string]string // variables by name; exported and others alike
	args   []string          // positional parameters $0, $1 and so on
	dir    string            // working directory, absolute and clean
	pid    int               // value of $$, which subshells inherit
	status int               // value of $?: exit status of the last command
	last   int               // value of $!: PID of the last background process; 0 if none
	exited bool              // whether exit was run, so that no further command runs

	children map[int]*Proc // background processes by PID, for wait
}

// Start runs a script in a new session and returns the process of its shell. Each stream may be used
// until that process and its children have ended.
func (m *Machine) Start(script string, in io.Reader, out, errOut io.Writer) *Proc {
	s := std{in, out, errOut}
	return m.spawn(nil, "sh", s, func(p *Proc) int {
		x := &interp{m: m, p: p, std: s, vars: map[string]string{"PATH": "/bin", "HOME": "/"}, args: []string{"sh"}, dir: "/", pid: p.PID, children: map[int]*Proc{}}
		return x.runScript(script)
	})
}

// runScript parses and runs a script and returns its status. A syntax error is reported on standard
// error, with status 2.
func (x *interp) runScript(s string) int {
	l, err := parseScript(s)
	if err != nil {
		fmt.Fprintf(x.std.err, "sh: %v\n", err)
		return 2
	}
	x.runList(l)
	return x.status
}

// runShell implements the command sh: with -c, or with commands from its input, up to 1 MiB. It copies
// the variables of the outer shell.
func (x *interp) runShell(c *Call) int {
	args := c.Args[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "-c" {
		args = args[1:]
	}
	child := &interp{m: x.m, p: c.Proc, std: std{c.In, unwrapOutput(c.Out), unwrapOutput(c.Err)}, vars: maps.Clone(x.vars), args: []string{"sh"}, dir: c.Dir, pid: c.PID, children: map[int]*Proc{}}
	if len(args) > 1 && args[0] == "-c" {
		if len(args) > 2 {
			child.args = args[2:]
		}
		return child.runScript(args[1])
	}
	text, err := io.ReadAll(io.LimitReader(c.In, 1<<20))
	if err != nil || len(args) > 0 {
		fmt.Fprintln(c.Err, "sh: cannot read the script")
		return statusNotFound
	}
	return child.runScript(string(text))
}

// hasEnded reports whether the shell must run no further command: after exit, or after a signal.
func (x *interp) hasEnded() bool { return x.exited || x.p.Ctx.Err() != nil }

// runList runs the commands of a list in order.
func (x *interp) runList(l list) {
	for _, it := range l {
		if x.hasEnded() {
			return
		}
		if it.background {
			x.runBackground(it.cmd)
			continue
		}
		x.runNode(it.cmd)
	}
}

// forkNode runs a node in a new process with a copy of this shell, and returns the process without
// waiting for it.
func (x *interp) forkNode(n node, s std) *Proc {
	child := *x
	child.vars, child.std, child.children = maps.Clone(x.vars), s, map[int]*Proc{}
	return x.m.spawn(x.p, "sh", s, func(p *Proc) int {
		child.p = p
		child.runInPlace(n)
		return child.status
	})
}

// runInPlace runs the only node of a new process. A simple command replaces the shell in that process,
// so that the PID that the parent sees is the command's.
func (x *interp) runInPlace(n node) {
	switch n := n.(type) {
	case *simpleCommand:
		x.runSimple(n, true)
	case *group:
		s, closeAll, err := x.openRedirections(n.redirs)
		defer closeAll()
		if err != nil {
			x.reportError(err)
			return
		}
		x.p.switchOutputs(s)
		x.std = s
		x.runList(n.body)
	default:
		x.runNode(n)
	}
}

// runBackground starts a node without input and sets $! to its PID.
func (x *interp) runBackground(n node) {
	s := x.std
	s.in = noInput{} // a background process must not read the shell's input
	p := x.forkNode(n, s)
	x.children[p.PID] = p
	x.last, x.status = p.PID, 0
}

// runNode runs a node in this shell and sets the status.
func (x *interp) runNode(n node) {
	switch n := n.(type) {
	case *simpleCommand:
		x.runSimple(n, false)
	case *pipeline:
		x.runPipeline(n)
	case *andOrList:
		x.runNode(n.first)
		for _, l := range n.rest {
			if x.hasEnded() {
				return
			}
			if l.and == (x.status == 0) {
				x.runNode(l.cmd)
			}
		}
	case *group:
		x.runGroup(n)
	case *ifClause:
		if x.runList(n.cond); x.status == 0 {
			x.status = 0
			x.runList(n.then)
			return
		}
		x.status = 0
		x.runList(n.otherwise)
	case *whileLoop:
		x.runLoop(n)
	case *forLoop:
		x.runFor(n)
	}
}

// runLoop runs while and until loops. The status is that of the last body, or 0 if the body never ran.
func (x *interp) runLoop(n *whileLoop) {
	status := 0
	for !x.hasEnded() {
		if x.runList(n.cond); (x.status == 0) == n.until || x.hasEnded() {
			break
		}
		x.runList(n.body)
		status = x.status
	}
	if !x.exited {
		x.status = status
	}
}

// runFor runs a for loop over its words, or over the positional parameters.
func (x *interp) runFor(n *forLoop) {
	values := x.args[1:]
	if !n.args {
		values = nil
		for _, w := range n.words {
			values = append(values, x.expandPattern(w)...)
		}
	}
	x.status = 0
	for _, v := range values {
		if x.hasEnded() {
			return
		}
		x.vars[n.name] = v
		x.runList(n.body)
	}
}

// runPipeline runs each command of a pipeline in its own process and waits for all. The status is that
// of the last command. When a process ends, its ends of the pipes are closed: the next reader gets
// io.EOF, the previous writer gets SIGPIPE.
func (x *interp) runPipeline(n *pipeline) {
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
		p := x.forkNode(cmd, s)
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
		x.status = x.p.waitFor(p)
	}
	if n.negate {
		x.status = map[bool]int{true: 1, false: 0}[x.status == 0]
	}
}

// runGroup runs { } in this shell and ( ) in a new process, with the redirections of the group.
func (x *interp) runGroup(n *group) {
	s, closeAll, err := x.openRedirections(n.redirs)
	defer closeAll()
	if err != nil {
		x.reportError(err)
		return
	}
	if n.subshell {
		x.status = x.p.waitFor(x.forkNode(&group{body: n.body}, s))
		return
	}
	outer := x.std
	x.std = s
	x.runList(n.body)
	x.std = outer
}

// reportError writes an error to standard error and sets status 1.
func (x *interp) reportError(err error) {
	fmt.Fprintf(x.std.err, "sh: %v\n", err)
	x.status = 1
}

// openRedirections opens the files of the redirections, in order, and returns the resulting streams.
// closeAll must be called also after an error.
func (x *interp) openRedirections(redirs []redirection) (s std, closeAll func(), err error) {
	s = x.std
	var open []io.Closer
	closeAll = func() {
		for _, c := range open {
			_ = c.Close() // the writes have been answered for
		}
	}
	for _, r := range redirs {
		name := strings.Join(x.expandWord(r.target), " ")
		switch {
		case r.op == ">&" && name == "1": // 2>&1
			s.err = s.out
		case r.op == ">&" && name == "2": // >&2
			s.out = s.err
		case r.op == ">&" || r.fd > 2:
			return s, closeAll, fmt.Errorf("bad file descriptor: %s", name)
		case name == "/dev/null": // needs no file
			s.setFD(r.fd, noInput{}, io.Discard)
		default:
			mode := map[string]Mode{"<": Read, ">": Write, ">>": Append}[r.op]
			f, err := x.m.Open(x.absPath(name), mode)
			if err != nil {
				verb := map[bool]string{true: "open", false: "create"}[mode == Read]
				return s, closeAll, fmt.Errorf("can't %s %s: %w", verb, name, err)
			}
			open = append(open, f)
			s.setFD(r.fd, f, f)
		}
	}
	return s, closeAll, nil
}

// setFD replaces the stream with the descriptor fd, 0 to 2.
func (s *std) setFD(fd int, in io.Reader, out io.Writer) {
	switch fd {
	case 0:
		s.in = in
	case 1:
		s.out = out
	case 2:
		s.err = out
	}
}

// absPath returns the absolute, clean form of a file name.
func (x *interp) absPath(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(x.dir, name)
}

// runSimple runs one simple command: expansion, redirections, assignments, then a builtin or a program.
// If inPlace is set, the program runs in the shell's process.
func (x *interp) runSimple(n *simpleCommand, inPlace bool) {
	args := []string{}
	for _, w := range n.words {
		args = append(args, x.expandPattern(w)...)
	}
	s, closeAll, err := x.openRedirections(n.redirs)
	if err == nil && len(args) == 1 && args[0] == "exec" {
		x.p.switchOutputs(s)
		x.std = s // the files stay open from now on
		return
	}
	defer closeAll()
	if err != nil {
		x.reportError(err)
		return
	}
	for _, a := range n.assign {
		x.vars[a.name] = strings.Join(x.expandWord(a.value), " ")
	}
	if len(args) == 0 { // assignments only
		return
	}
	if args[0] == "exec" && len(args) > 1 { // the command replaces the shell
		args, inPlace, x.exited = args[1:], true, true
	}
	if x.runBuiltin(args, s) {
		return
	}
	if inPlace {
		x.p.switchOutputs(s)
		x.status = x.runExternal(x.p, args, s)
		return
	}
	x.status = x.p.waitFor(x.m.spawn(x.p, args[0], s, func(p *Proc) int { return x.runExternal(p, args, s) }))
}

// runExternal runs a program in process p and names the process after it. Its outputs end the process
// if their reader is gone.
func (x *interp) runExternal(p *Proc, args []string, s std) int {
	c := &Call{Proc: p, Args: args, In: s.in, Out: &brokenPipe{s.out, p}, Err: &brokenPipe{s.err, p}, Dir: x.dir}
	p.m.mu.Lock()
	p.name = args[0]
	p.m.mu.Unlock()
	return x.runCommand(c)
}

// runCommand runs a program of the machine, or one of sh, setsid and nohup, which need the shell.
func (x *interp) runCommand(c *Call) int {
	switch name := baseName(c.Args[0]); {
	case name == "sh":
		return x.runShell(c)
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
		return x.runCommand(&next)
	}
	return x.m.runCommand(c)
}

// runBuiltin runs a command that changes the shell itself and sets the status. It returns false if
// args[0] is no such command. export, set, trap and umask accept any arguments; only assignments of
// export have an effect.
func (x *interp) runBuiltin(args []string, s std) bool {
	status := 0
	switch args[0] {
	case ":", "true", "set", "trap", "umask", "export": // succeed
		for _, a := range args[1:] {
			if name, value, ok := strings.Cut(a, "="); ok && args[0] == "export" {
				x.vars[name] = value
			}
		}
	case "false": // fails
		status = 1
	case "exit": // ends the shell after this command
		x.exited = true
		status = x.status
		if len(args) > 1 {
			status, _ = strconv.Atoi(args[1]) // 0 if it is no number
		}
	case "shift":
		status = x.shiftArgs(args[1:], s)
	case "cd":
		status = x.changeDir(args[1:], s)
	case "wait":
		status = x.waitForChildren(args[1:])
	case "eval":
		x.evalScript(strings.Join(args[1:], " "))
		status = x.status
	case "echo":
		x.runEcho(args[1:], s)
	case "command":
		if status = statusNotFound; len(args) == 3 && args[1] == "-v" && x.isCommand(args[2]) {
			status = 0
			fmt.Fprintln(s.out, "/bin/"+args[2])
		}
	default:
		return false
	}
	x.status = status
	return true
}

// changeDir implements cd and returns its status. Without an argument it changes to /.
func (x *interp) changeDir(args []string, s std) int {
	to := "/"
	if len(args) > 0 {
		to = x.absPath(args[0])
	}
	if x.m.IsDir != nil && !x.m.IsDir(to) {
		fmt.Fprintf(s.err, "sh: cd: can't cd to %s\n", to)
		return 1
	}
	x.dir = to
	return 0
}

// shiftArgs implements shift and returns its status. $0 stays.
func (x *interp) shiftArgs(args []string, s std) int {
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

// evalScript implements eval: it runs a script in this shell.
func (x *interp) evalScript(s string) {
	l, err := parseScript(s)
	if err != nil {
		x.reportError(err)
		return
	}
	x.runList(l)
}

// isCommand reports whether command -v finds the name.
func (x *interp) isCommand(name string) bool {
	switch name {
	case "sh", "setsid", "nohup", "echo", "cd", "exit", "wait", "true", "false":
		return true
	}
	return x.m.Commands[name] != nil
}

// runEcho implements echo with the option -n. A write error ends the process with SIGPIPE.
func (x *interp) runEcho(args []string, s std) {
	end := "\n"
	if len(args) > 0 && args[0] == "-n" {
		args, end = args[1:], ""
	}
	if _, err := io.WriteString(s.out, strings.Join(args, " ")+end); err != nil {
		x.p.kill(&errSignal{PIPE})
	}
}

// waitForChildren implements wait: for the given PIDs, or for all background processes. The status of
// an unknown PID is 127.
func (x *interp) waitForChildren(pids []string) (status int) {
	if len(pids) == 0 {
		for _, p := range x.children {
			x.p.waitFor(p)
		}
		return 0
	}
	for _, s := range pids {
		pid, _ := strconv.Atoi(s) // no child has pid 0
		p := x.children[pid]
		if p == nil {
			return statusNotFound
		}
		status = x.p.waitFor(p)
	}
	return status
}

// expandWord returns the fields of a word after parameter expansion, command substitution and field
// splitting (POSIX shell, section 2.6). A quoted "$@" becomes one field for each positional parameter.
func (x *interp) expandWord(w word) []string {
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
		text, literal := x.partValue(p)
		if p.quoted || literal { // no field splitting
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

// splitFields splits s at white space. An empty first or last field marks white space at that end, so
// that neighbouring parts of the word are separate fields.
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

// partValue returns the text of a part, and whether the script contains it literally: such text is not
// split into fields.
func (x *interp) partValue(p part) (text string, literal bool) {
	switch {
	case p.subst != nil:
		return x.captureOutput(p.subst), false
	case !p.param:
		return p.text, true
	}
	switch p.text {
	case "?": // status of the last command
		return strconv.Itoa(x.status), false
	case "$": // PID of the shell
		return strconv.Itoa(x.pid), false
	case "!": // PID of the last background process
		if x.last == 0 {
			return "", false
		}
		return strconv.Itoa(x.last), false
	case "#": // number of positional parameters
		return strconv.Itoa(len(x.args) - 1), false
	case "@", "*": // all positional parameters
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

// captureOutput runs $(...) in a subshell and returns at most 1 MiB of its output, without the newlines
// at its end.
func (x *interp) captureOutput(l list) string {
	pr, pw := io.Pipe()
	s := x.std
	s.out = pw
	p := x.forkNode(&group{body: l}, s)
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
	x.status = x.p.waitFor(p)
	return strings.TrimRight(buf.String(), "\n")
}

// baseName returns the last element of a command's path: /bin/cat is cat.
func baseName(s string) string { return path.Base(s) }
