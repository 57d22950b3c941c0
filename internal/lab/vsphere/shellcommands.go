package vsphere

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/lab/shell"
)

// A ratedReader reads a disk at the rate of its datastore.
type ratedReader struct {
	ctx  context.Context // ends waiting
	src  content         // disk to read
	rate *bucket         // rate limit of the datastore
}

// ReadAt implements io.ReaderAt.
func (r *ratedReader) ReadAt(p []byte, off int64) (int, error) {
	if err := sleepContext(r.ctx, r.rate.reserveBytes(len(p), time.Now())); err != nil {
		return 0, err
	}
	return r.src.ReadAt(p, off)
}

// hostCommands returns the programs of a host. They imitate the parts that callers depend on:
// arguments, output and exit status.
func (h *shellHost) hostCommands() map[string]shell.Command {
	t := &fileCommands{files: h.files}
	all := map[string]shell.Command{
		"vmkfstools": h.vmkfstools, "esxcli": h.esxcli, "localcli": h.esxcli, "vim-cmd": h.vimCmd,
		"cat": t.cat, "ls": t.ls, "rm": t.rm, "mv": t.mv, "printf": printfCmd, "mkdir": t.mkdirCmd, "touch": t.touch, "stat": t.stat, "head": t.head, "tail": t.tail, "wc": t.wc,
		"md5sum": t.sum(md5.New), "openssl": t.openssl, "kill": h.kill, "ps": h.ps, "sleep": sleepCmd, "test": t.test, "[": t.test,
		"hostname": h.printLine(h.name), "vmware": h.printLine("VMware ESXi " + h.lab.cfg.Version + " build-24022510"), "uname": h.printLine("VMkernel"),
		"esxtop": h.esxtop,
		"id":     h.printLine("uid=0(root) gid=0(root)"), "sync": h.printLine(""),
	}
	if h.lab.cfg.SSH.SHA256Sum {
		all["sha256sum"] = t.sum(sha256.New)
	}
	return all
}

// printLine returns a command that prints a line; an empty line prints nothing.
func (h *shellHost) printLine(line string) shell.Command {
	return func(c *shell.Call) int {
		if line != "" {
			fmt.Fprintln(c.Out, line)
		}
		return 0
	}
}

// splitFlags separates options, single letters in any grouping, from the other arguments. "--" ends the
// options.
func splitFlags(args []string) (set map[byte]bool, rest []string) {
	set = map[byte]bool{}
	for i, a := range args {
		if a == "--" {
			return set, append(rest, args[i+1:]...)
		}
		if len(a) < 2 || a[0] != '-' {
			rest = append(rest, a)
			continue
		}
		for _, f := range []byte(a[1:]) {
			set[f] = true
		}
	}
	return set, rest
}

// absPath returns the absolute form of a file name.
func absPath(c *shell.Call, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(c.Dir, name)
}

// forEachPath runs f for every path and prints errors. The status is 1 if any call failed.
func forEachPath(c *shell.Call, names []string, f func(name string) error) (status int) {
	for _, name := range names {
		if err := f(absPath(c, name)); err != nil {
			fmt.Fprintf(c.Err, "%s: %s: %v\n", c.Args[0], name, err)
			status = 1
		}
	}
	return status
}

// fileCommands are the programs that require only the files of a host.
type fileCommands struct{ files *hostFiles }

// copyOut writes the content of a file to w.
func (t *fileCommands) copyOut(c *shell.Call, w io.Writer, name string) error {
	r, size, err := t.files.openReader(c.Ctx, name)
	if err != nil {
		return fmt.Errorf("can't open '%s': %w", name, err)
	}
	buf := make([]byte, bufferSize)
	for off := int64(0); off < size; off += int64(len(buf)) {
		if c.Ctx.Err() != nil {
			return context.Cause(c.Ctx)
		}
		p := buf[:min(int64(len(buf)), size-off)]
		if n, err := r.ReadAt(p, off); n < len(p) {
			return errors.Join(io.ErrUnexpectedEOF, err)
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// cat prints files, or its input without arguments.
func (t *fileCommands) cat(c *shell.Call) int {
	if len(c.Args) == 1 {
		_, err := io.Copy(c.Out, c.In)
		return boolStatus(err == nil)
	}
	return forEachPath(c, c.Args[1:], func(name string) error { return t.copyOut(c, c.Out, name) })
}

// boolStatus returns 0 for true and 1 for false.
func boolStatus(ok bool) int {
	if ok {
		return 0
	}
	return 1
}

// sum returns md5sum or a similar program with another hash.
func (t *fileCommands) sum(newHash func() hash.Hash) shell.Command {
	return func(c *shell.Call) int {
		if len(c.Args) == 1 {
			sum := newHash()
			_, err := io.Copy(sum, c.In)
			fmt.Fprintf(c.Out, "%x  -\n", sum.Sum(nil))
			return boolStatus(err == nil)
		}
		return forEachPath(c, c.Args[1:], func(name string) error {
			sum := newHash()
			if err := t.copyOut(c, sum, name); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.Out, "%x  %s\n", sum.Sum(nil), name)
			return err
		})
	}
}

// openssl implements dgst -sha256 FILE and dgst -md5 FILE.
func (t *fileCommands) openssl(c *shell.Call) int {
	algorithms := map[string]func() hash.Hash{"-sha256": sha256.New, "-md5": md5.New}
	if len(c.Args) != 4 || c.Args[1] != "dgst" || algorithms[c.Args[2]] == nil {
		fmt.Fprintln(c.Err, "openssl: the emulator supports dgst -sha256 FILE and dgst -md5 FILE")
		return 1
	}
	return forEachPath(c, c.Args[3:], func(name string) error {
		sum := algorithms[c.Args[2]]()
		if err := t.copyOut(c, sum, name); err != nil {
			return err
		}
		_, err := fmt.Fprintf(c.Out, "%s(%s)= %x\n", strings.ToUpper(c.Args[2][1:]), name, sum.Sum(nil))
		return err
	})
}

// ls lists files and folders, with the options -l, -d, -a and -A.
func (t *fileCommands) ls(c *shell.Call) int {
	set, names := splitFlags(c.Args[1:])
	if len(names) == 0 {
		names = []string{"."}
	}
	return forEachPath(c, names, func(name string) error {
		if set['d'] || !t.files.isDir(c.Ctx, name) {
			return t.lsOne(c, set['l'], name, name)
		}
		entries, err := t.files.listFolder(c.Ctx, name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if strings.HasPrefix(e, ".") && !set['a'] && !set['A'] {
				continue
			}
			if err := t.lsOne(c, set['l'], path.Join(name, e), e); err != nil {
				return err
			}
		}
		return nil
	})
}

// lsOne prints one line. Owner, group and date are constant.
func (t *fileCommands) lsOne(c *shell.Call, long bool, name, show string) error {
	f, err := t.files.statFile(c.Ctx, name)
	if err != nil {
		return err
	}
	if !long {
		fmt.Fprintln(c.Out, show)
		return nil
	}
	mode := "-rw-------"
	if f.dir {
		mode = "drwxr-xr-x"
	}
	fmt.Fprintf(c.Out, "%s    1 root     root     %12d Jan  1 00:00 %s\n", mode, f.size, show)
	return nil
}

// rm removes files, with the options -r, -R and -f.
func (t *fileCommands) rm(c *shell.Call) int {
	set, names := splitFlags(c.Args[1:])
	return forEachPath(c, names, func(name string) error {
		err := t.rmTree(c, name, set['r'] || set['R'])
		if set['f'] && errors.Is(err, errNoFile) {
			return nil
		}
		return err
	})
}

// rmTree removes a file or a folder. A folder is an error unless recursive is set.
func (t *fileCommands) rmTree(c *shell.Call, name string, recursive bool) error {
	if t.files.isDir(c.Ctx, name) {
		if !recursive {
			return errIsDir
		}
		entries, err := t.files.listFolder(c.Ctx, name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := t.rmTree(c, path.Join(name, e), true); err != nil {
				return err
			}
		}
	}
	return t.files.removeFile(c.Ctx, name)
}

// mkdirCmd creates folders, with the option -p.
func (t *fileCommands) mkdirCmd(c *shell.Call) int {
	set, names := splitFlags(c.Args[1:])
	return forEachPath(c, names, func(name string) error {
		return t.files.makeFolder(c.Ctx, name, set['p'])
	})
}

// touch creates missing files. It changes no times.
func (t *fileCommands) touch(c *shell.Call) int {
	_, names := splitFlags(c.Args[1:])
	return forEachPath(c, names, func(name string) error {
		_, err := t.files.createFile(name, false)
		return err
	})
}

// stat supports -c with %s and %n.
func (t *fileCommands) stat(c *shell.Call) int {
	args := c.Args[1:]
	format := "%n %s"
	if len(args) > 1 && args[0] == "-c" {
		format, args = args[1], args[2:]
	}
	return forEachPath(c, args, func(name string) error {
		f, err := t.files.statFile(c.Ctx, name)
		if err == nil {
			fmt.Fprintln(c.Out, strings.NewReplacer("%s", strconv.FormatInt(f.size, 10), "%n", name).Replace(format))
		}
		return err
	})
}

// textOf returns the input of head, tail and wc: the first file, or standard input, up to maxMemFile
// bytes.
func (t *fileCommands) textOf(c *shell.Call, names []string) ([]byte, error) {
	var b strings.Builder
	if len(names) == 0 {
		_, err := io.Copy(&b, io.LimitReader(c.In, maxMemFile))
		return []byte(b.String()), err
	}
	f, err := t.files.statFile(c.Ctx, absPath(c, names[0]))
	if err == nil && f.size > maxMemFile {
		err = errors.New("file is too large for the emulator")
	}
	if err == nil {
		err = t.copyOut(c, &b, absPath(c, names[0]))
	}
	return []byte(b.String()), err
}

// countArgs separates -c N, -cN, -n N and -N from the other arguments. The default is 10 lines.
func countArgs(args []string) (n int, bytes bool, rest []string) {
	n = 10
	for i := 0; i < len(args); i++ {
		a := args[i]
		if len(a) < 2 || a[0] != '-' {
			rest = append(rest, a)
			continue
		}
		bytes = bytes || a[1] == 'c'
		digits := strings.TrimLeft(a, "-cn")
		if digits == "" && i+1 < len(args) {
			i++
			digits = args[i]
		}
		if v, err := strconv.Atoi(digits); err == nil && v >= 0 {
			n = v
		}
	}
	return n, bytes, rest
}

// head prints the first lines or bytes.
func (t *fileCommands) head(c *shell.Call) int {
	return t.printPart(c, func(text []string, n int) []string { return text[:min(n, len(text))] })
}

// tail prints the last lines or bytes.
func (t *fileCommands) tail(c *shell.Call) int {
	return t.printPart(c, func(text []string, n int) []string { return text[max(0, len(text)-n):] })
}

// printPart prints the lines or bytes that choose returns of the whole text.
func (t *fileCommands) printPart(c *shell.Call, choose func([]string, int) []string) int {
	n, byBytes, names := countArgs(c.Args[1:])
	text, err := t.textOf(c, names)
	if err != nil {
		fmt.Fprintf(c.Err, "%s: %v\n", c.Args[0], err)
		return 1
	}
	units := strings.SplitAfter(string(text), "\n")
	if byBytes {
		units = strings.Split(string(text), "")
	} else if units[len(units)-1] == "" {
		units = units[:len(units)-1]
	}
	fmt.Fprint(c.Out, strings.Join(choose(units, n), ""))
	return 0
}

// wc prints the number of bytes, or of lines with -l.
func (t *fileCommands) wc(c *shell.Call) int {
	set, names := splitFlags(c.Args[1:])
	text, err := t.textOf(c, names)
	if err != nil {
		fmt.Fprintf(c.Err, "wc: %v\n", err)
		return 1
	}
	n := len(text)
	if set['l'] {
		n = strings.Count(string(text), "\n")
	}
	fmt.Fprintln(c.Out, strings.TrimSpace(fmt.Sprint(n, " ", strings.Join(names, " "))))
	return 0
}

// test supports -e -f -d -s -n -z, = != and -eq -ne, also as [.
func (t *fileCommands) test(c *shell.Call) int {
	args := c.Args[1:]
	if c.Args[0] == "[" {
		if len(args) == 0 || args[len(args)-1] != "]" {
			fmt.Fprintln(c.Err, "[: missing ]")
			return 2
		}
		args = args[:len(args)-1]
	}
	if len(args) > 0 && args[0] == "!" {
		return boolStatus(!t.evaluateTest(c, args[1:]))
	}
	return boolStatus(t.evaluateTest(c, args))
}

// evaluateTest returns the value of a condition without !. An unknown operator is false.
func (t *fileCommands) evaluateTest(c *shell.Call, args []string) bool {
	switch len(args) {
	case 1:
		return args[0] != ""
	case 2:
		switch args[0] {
		case "-n":
			return args[1] != ""
		case "-z":
			return args[1] == ""
		}
		f, err := t.files.statFile(c.Ctx, absPath(c, args[1]))
		return err == nil && map[string]bool{"-e": true, "-f": !f.dir, "-d": f.dir, "-s": f.size > 0}[args[0]]
	case 3:
		a, _ := strconv.Atoi(args[0])
		b, _ := strconv.Atoi(args[2])
		return map[string]bool{"=": args[0] == args[2], "!=": args[0] != args[2], "-eq": a == b, "-ne": a != b}[args[1]]
	}
	return false
}

// signalNames maps names and numbers to signals.
var signalNames = map[string]shell.Signal{"0": 0, "HUP": shell.HUP, "1": shell.HUP, "INT": shell.INT, "2": shell.INT, "KILL": shell.KILL, "9": shell.KILL, "TERM": shell.TERM, "15": shell.TERM}

// kill sends a signal to processes and groups; the default is TERM.
func (h *shellHost) kill(c *shell.Call) (status int) {
	args, s := c.Args[1:], shell.TERM
	if len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "--" {
		name := strings.TrimPrefix(args[0], "-")
		if args = args[1:]; name == "s" && len(args) > 0 {
			name, args = args[0], args[1:]
		}
		var known bool
		if s, known = signalNames[name]; !known {
			fmt.Fprintf(c.Err, "sh: kill: bad signal name '%s'\n", name)
			return 1
		}
	}
	for _, a := range args {
		if a == "--" { // busybox expects the group right after the signal
			fmt.Fprintln(c.Err, "sh: invalid number '--'")
			return 1
		}
		pid, err := strconv.Atoi(a)
		if err == nil {
			err = h.machine.Signal(pid, s)
		}
		if err != nil {
			fmt.Fprintf(c.Err, "sh: can't kill pid %s: No such process\n", a)
			status = 1
		}
	}
	return status
}

// ps lists the processes by PID.
func (h *shellHost) ps(c *shell.Call) int {
	procs := h.machine.List()
	slices.SortFunc(procs, func(a, b shell.Listing) int { return a.PID - b.PID })
	fmt.Fprintln(c.Out, "WID      CID      WorldName")
	for _, p := range procs {
		fmt.Fprintf(c.Out, "%-8d %-8d %s\n", p.PID, p.PID, path.Base(p.Name))
	}
	return 0
}

// sleepCmd waits in real time, because scripts poll.
func sleepCmd(c *shell.Call) int {
	if len(c.Args) < 2 {
		return 1
	}
	seconds, err := strconv.ParseFloat(c.Args[1], 64)
	if err != nil {
		fmt.Fprintf(c.Err, "sleep: invalid number '%s'\n", c.Args[1])
		return 1
	}
	_ = sleepContext(c.Ctx, time.Duration(seconds*float64(time.Second))) // a signal ends it
	return 0
}

// printfCmd supports %s and newlines in the format, which it repeats while arguments are left.
func printfCmd(c *shell.Call) int {
	if len(c.Args) < 2 {
		return 1
	}
	format, words := strings.ReplaceAll(c.Args[1], `\n`, "\n"), c.Args[2:]
	for {
		before, after, more := strings.Cut(format, "%s")
		for more {
			fmt.Fprint(c.Out, before)
			if len(words) > 0 {
				fmt.Fprint(c.Out, words[0])
				words = words[1:]
			}
			before, after, more = strings.Cut(after, "%s")
		}
		if fmt.Fprint(c.Out, before); len(words) == 0 || !strings.Contains(format, "%s") {
			return 0
		}
	}
}

// mv renames one file or folder of the RAM disk.
func (t *fileCommands) mv(c *shell.Call) int {
	_, names := splitFlags(c.Args[1:])
	if len(names) != 2 {
		fmt.Fprintln(c.Err, "mv: the emulator supports mv FROM TO")
		return 1
	}
	return forEachPath(c, names[:1], func(name string) error { return t.files.renameFile(name, absPath(c, names[1])) })
}
