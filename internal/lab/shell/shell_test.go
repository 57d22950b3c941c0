package shell

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// testTimeout limits the wait for an event that should happen at once.
const testTimeout = time.Minute

// testMachine is a machine with a few commands and files in memory.
type testMachine struct {
	*Machine
	mu    sync.Mutex
	files map[string]*bytes.Buffer
	block chan string // arguments of each started "block" command
}

func newTestMachine(t *testing.T) *testMachine {
	b := &testMachine{files: map[string]*bytes.Buffer{}, block: make(chan string, 10)}
	b.Machine = &Machine{Open: b.open, Commands: map[string]Command{
		"args": func(c *Call) int { fmt.Fprintf(c.Out, "%q\n", c.Args[1:]); return 0 },
		"cat":  func(c *Call) int { _, err := io.Copy(c.Out, c.In); return map[bool]int{true: 0, false: 1}[err == nil] },
		"status": func(c *Call) int {
			n, _ := strconv.Atoi(c.Args[1])
			return n
		},
		"block": func(c *Call) int {
			b.block <- strings.Join(c.Args[1:], " ")
			<-c.Ctx.Done()
			return 0
		},
	}}
	t.Cleanup(b.Close)
	return b
}

type memFile struct {
	b   *testMachine
	buf *bytes.Buffer
	in  io.Reader
}

func (f *memFile) Read(p []byte) (int, error) { return f.in.Read(p) }
func (f *memFile) Close() error               { return nil }
func (f *memFile) Write(p []byte) (int, error) {
	f.b.mu.Lock()
	defer f.b.mu.Unlock()
	return f.buf.Write(p)
}

func (b *testMachine) open(name string, mode Mode) (io.ReadWriteCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	buf := b.files[name]
	if mode == Read && buf == nil {
		return nil, fs.ErrNotExist
	}
	if mode == Write || buf == nil {
		buf = &bytes.Buffer{}
		b.files[name] = buf
	}
	return &memFile{b, buf, strings.NewReader(buf.String())}, nil
}

func (b *testMachine) fileContent(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.files[name]; f != nil {
		return f.String()
	}
	return "(no file)"
}

// runScript runs a script and waits for its end.
func (b *testMachine) runScript(t *testing.T, script string) (out string, status int) {
	t.Helper()
	var buf lockedBuffer
	p := b.Start(script, strings.NewReader("input"), &buf, &buf)
	waitDone(t, p.Done())
	return buf.String(), p.Status()
}

func waitDone(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(testTimeout):
		t.Fatal("the script does not end")
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestScripts(t *testing.T) {
	for script, want := range map[string]string{
		`args a  b`:                                    `["a" "b"]`,
		`args 'a  b' "c'd" e\ f ''`:                    `["a  b" "c'd" "e f" ""]`,
		`args 'it'\''s' "a\"b\$c\\d\e"`:                `["it's" "a\"b$c\\d\\e"]`,
		`X='a b'; args $X "$X" pre$X"$X"`:              `["a" "b" "a b" "prea" "ba b"]`,
		`args $NOTHING "$NOTHING"`:                     `[""]`,
		`args ${X}y; X=1`:                              `["y"]`,
		`args # a comment`:                             `[]`,
		"args a\\\nb":                                  `["ab"]`,
		`args "*" *.vmdk`:                              `["*" "*.vmdk"]`,
		`args $(echo a b) "$(echo a b)"`:               `["a" "b" "a b"]`,
		`args "$(echo "$(echo 'x)y')")"`:               `["x)y"]`,
		`status 3; args $?`:                            `["3"]`,
		`status 3 || args or && args and`:              "[\"or\"]\n[\"and\"]",
		`status 0 && args and || args or`:              `["and"]`,
		`! status 1 && args not`:                       `["not"]`,
		`echo a | cat | cat`:                           `a`,
		`cat`:                                          `input`,
		`cat </dev/null; echo end`:                     `end`,
		`echo x >/f; echo y >>/f; cat </f`:             "x\ny",
		`{ echo a; echo b; } >/f; cat </f`:             "a\nb",
		`(X=1; exit 4); args $? "$X"`:                  `["4" ""]`,
		`if status 1; then args a; else args b; fi`:    `["b"]`,
		`if false; then :; elif true; then args c; fi`: `["c"]`,
		`until [ ]; do args once; exit; done`:          "sh: [: not found\n[\"once\"]",
		`while status 1; do :; done; args $?`:          `["0"]`,
		`sh -c 'args "$0" "$1" "$@"' name 'a b' c`:     `["name" "a b" "a b" "c"]`,
		`nosuch`:                          `sh: nosuch: not found`,
		`/bin/args x`:                     `["x"]`,
		`nosuch 2>/dev/null; echo $?`:     `127`,
		`nosuch >/f 2>&1; cat </f`:        `sh: nosuch: not found`,
		`exec args gone; args still here`: `["gone"]`,
		`cat </none`:                      `sh: can't open /none: file does not exist`,
		`echo 'unterminated`:              `sh: unterminated quoted string`,
		`echo a; )`:                       `sh: syntax error: unexpected ")"`,
		`if true; then`:                   `sh: syntax error: unexpected end of file`,
		`for x in a; echo; done`:          `sh: syntax error: unexpected "echo"`,
		`for 1 in a; do :; done`:          `sh: syntax error: unexpected "1"`,
		`case x in esac`:                  `sh: syntax error: "case" is not supported`,
		`status 7 & wait $!; args $?`:     `["7"]`,
		`echo "$$" | args`:                `[]`,
	} {
		if got, _ := newTestMachine(t).runScript(t, script); strings.TrimSuffix(got, "\n") != want {
			t.Errorf("%s\ngot  %s\nwant %s", script, got, want)
		}
	}
}

func TestStatus(t *testing.T) {
	for script, want := range map[string]int{
		"": 0, "status 9": 9, "exit 5; status 1": 5, "nosuch": 127, "status 2; echo": 0, "'": 2, "status 3 | true": 0, "sh -c 'exit 6'": 6,
	} {
		if _, got := newTestMachine(t).runScript(t, script); got != want {
			t.Errorf("%q: status %d, want %d", script, got, want)
		}
	}
}

// detached starts a long command in the background, as clients start a copy on a host.
const detached = `setsid sh -c 'echo $$ >/pid; block one >/log 2>&1; echo $? >/exit' </dev/null >/dev/null 2>&1 & echo $!`

func TestDetachedProcessSurvivesItsSession(t *testing.T) {
	b := newTestMachine(t)
	var out lockedBuffer
	p := b.Start(detached, noInput{}, &out, &out)
	waitDone(t, p.Done())
	<-b.block
	p.Hangup()
	if b.fileContent("/pid") != out.String() {
		t.Errorf("pid file %q, $! %q", b.fileContent("/pid"), out.String())
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Signal(pid, 0); err != nil {
		t.Errorf("the process did not survive: %v", err)
	}
	if b.fileContent("/exit") != "(no file)" {
		t.Errorf("the process ended: %q", b.fileContent("/exit"))
	}
	if err := b.Signal(-pid, TERM); err != nil {
		t.Fatal(err)
	}
	b.waitForEnd(t, pid)
}

// waitForEnd waits until a process has ended.
func (b *testMachine) waitForEnd(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
		if errors.Is(b.Signal(pid, 0), ErrNoProcess) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still running", pid)
		}
	}
}

func TestSessionEndSendsHangup(t *testing.T) {
	b := newTestMachine(t)
	p := b.Start("block plain & nohup block kept >/dev/null 2>&1 & echo $!", noInput{}, io.Discard, io.Discard)
	waitDone(t, p.Done())
	<-b.block
	<-b.block
	p.Hangup()
	for deadline := time.Now().Add(testTimeout); len(b.List()) > 1 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	if l := b.List(); len(l) != 1 || l[0].Name != "nohup" {
		t.Errorf("remaining processes: %v", l)
	}
}

func TestKilledCommandHasTheStatusOfItsSignal(t *testing.T) {
	b := newTestMachine(t)
	var out lockedBuffer
	p := b.Start("block x; echo $?", noInput{}, &out, &out)
	<-b.block
	for _, l := range b.List() {
		if l.Name == "block" {
			if err := b.Signal(l.PID, KILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	waitDone(t, p.Done())
	if out.String() != "137\n" {
		t.Errorf("%q", out.String())
	}
}

type holder struct {
	io.Writer
	wg *sync.WaitGroup
}

func (h holder) Hold() { h.wg.Add(1) }
func (h holder) Drop() { h.wg.Done() }

// A background command holds the output of the session, so ssh host 'command &' waits for its end.
func TestOutputIsHeldByBackgroundProcesses(t *testing.T) {
	b := newTestMachine(t)
	h := holder{io.Discard, &sync.WaitGroup{}}
	p := b.Start("block held &", noInput{}, h, h)
	waitDone(t, p.Done())
	<-b.block
	released := make(chan struct{})
	go func() {
		h.wg.Wait()
		close(released)
	}()
	select {
	case <-released:
		t.Error("the output is not held")
	default:
	}
	p.Hangup()
	waitDone(t, released)
}

// A background command with redirected output does not hold the output of the session.
func TestRedirectedBackgroundProcessesHoldNoOutput(t *testing.T) {
	for _, script := range []string{"block x >/dev/null 2>&1 &", "(block x) >/dev/null 2>&1 &", "{ block x; } >/f 2>&1 &", detached} {
		b := newTestMachine(t)
		h := holder{io.Discard, &sync.WaitGroup{}}
		p := b.Start(script, noInput{}, h, h)
		waitDone(t, p.Done())
		<-b.block
		h.wg.Wait() // blocks if the output is held
	}
}

func TestWriterToAClosedPipeIsKilled(t *testing.T) {
	b := newTestMachine(t)
	pr, pw := io.Pipe()
	pr.Close()
	p := b.Start("args x; sh -c 'args y'; status 0", noInput{}, pw, io.Discard)
	waitDone(t, p.Done())
	var out lockedBuffer
	p = b.Start("args x | status 5; echo $?", noInput{}, &out, &out)
	waitDone(t, p.Done())
	if out.String() != "5\n" {
		t.Errorf("%q", out.String())
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{detached, `a "b $(c 'd') e" | f && { g; } || (h) & if i; then j; fi 2>&1 >>k`, `${`, `$(($(`, "'\\\"", `a=b c=$d "$@"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := parseScript(s)
		if err != nil && l != nil {
			t.Errorf("%q: a script and an error", s)
		}
		if strings.Count(s, "'")%2 == 1 && !strings.ContainsAny(s, "\"\\#") && err == nil {
			t.Errorf("%q: an unterminated quote was accepted", s)
		}
	})
}

// A word with the quotes of POSIX is parsed unchanged.
func FuzzQuote(f *testing.F) {
	f.Add("it's a \"disk\" $HOME `x` \\ \n;&|*")
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsRune(s, 0) {
			return
		}
		l, err := parseScript("args '" + strings.ReplaceAll(s, "'", `'\''`) + "'")
		if err != nil {
			t.Fatal(err)
		}
		x := &interp{vars: map[string]string{}, args: []string{"sh"}}
		c, ok := l[0].cmd.(*simpleCommand)
		if !ok || len(c.words) != 2 {
			t.Fatalf("%q: %v", s, l)
		}
		if got := x.expandWord(c.words[1]); len(got) != 1 || got[0] != s {
			t.Errorf("got %q, want %q", got, s)
		}
	})
}
