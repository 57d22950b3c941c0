package testboot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A watch sees what a guest does, and judges.
type watch struct {
	q    *qemu
	m    *machine
	opts Options

	console console
	ear     ear
	agent   *interview     // interview of the agent; nil if the VM has no channel for it
	expect  *regexp.Regexp // expected text; nil accepts only the known signs
	readers sync.WaitGroup

	began  time.Time
	screen screen
	blue   bool
	seen   string    // last observed text
	since  time.Time // nothing else was

	up   *Report // the guest is up: its agent may have something to tell
	upAt time.Time
}

func newWatch(q *qemu, m *machine, o Options) *watch {
	w := &watch{q: q, m: m, opts: o, began: o.Now()}
	w.ear.ipv4 = m.efi()
	if q.agent != nil {
		w.agent = newInterview(q.agent, o.Now)
	}
	if o.Expect != "" {
		w.expect = regexp.MustCompile(regexp.QuoteMeta(o.Expect))
	}
	return w
}

// deadline is how long a guest may take: Options', or what a slow one needs.
func (w *watch) deadline() time.Duration {
	switch {
	case w.opts.Deadline > 0:
		return w.opts.Deadline
	case w.m.accel == KVM:
		return 5 * time.Minute
	}
	return 15 * time.Minute
}

// run watches until there is a verdict, and ends the guest.
func (w *watch) run(ctx context.Context) (Report, error) {
	keep, err := w.listen()
	if err == nil {
		err = w.q.monitor.do(ctx, "qmp_capabilities", map[string]any{})
	}
	var r Report
	for err == nil && r.Verdict == "" {
		r, err = w.step(ctx)
	}
	if err == nil {
		r.Elapsed = w.opts.Now().Sub(w.began).Round(time.Millisecond)
		r.Screen, err = w.picture()
	}
	w.q.kill()
	w.readers.Wait()
	ended := w.q.wait()
	if errors.Is(err, errHungUp) { // its own output has more information
		err = cmp.Or(ended, err)
	}
	r.Network, r.Serial = w.ear.talkers(), keep
	w.ask(&r)
	return r, errors.Join(err, w.console.close())
}

// listen has the serial port, the cards and the agent read. It returns the file that keeps the former.
func (w *watch) listen() (string, error) {
	keep, err := w.opts.keep("serial.log")
	if err == nil && keep != "" {
		w.console.file, err = os.Create(keep)
	}
	w.readers.Go(func() { w.console.read(w.q.serial) })
	for _, c := range w.q.cards {
		w.readers.Go(func() { w.ear.listen(c) })
	}
	if w.agent != nil {
		w.readers.Go(func() { w.agent.listen(w.q.agent) })
	}
	return keep, err
}

// step waits briefly and evaluates the observations. QEMU's events are read before the wait: the output
// of a guest that prints that it is up and powers itself off is evaluated first.
func (w *watch) step(ctx context.Context) (Report, error) {
	told := w.q.monitor.told.seen()
	if w.agent != nil {
		w.agent.turn(told.agent)
	}
	select {
	case <-w.opts.After(time.Second):
	case <-w.q.monitor.done:
		return Report{}, errHungUp
	case <-ctx.Done():
		return Report{}, ctx.Err()
	}
	text, err := w.see(ctx)
	if err != nil {
		return Report{}, err
	}
	return w.settle(text, told, w.opts.Now()), nil
}

// settle is the verdict, if there is one and nothing more to wait for.
func (w *watch) settle(text string, told events, now time.Time) Report {
	if w.up == nil {
		r := w.conclude(text, told, now)
		if !r.Booted() {
			return r
		}
		w.up, w.upAt = &r, now
	}
	if w.awaits(text, told, now) {
		return Report{}
	}
	return *w.up
}

// conclude is the verdict, if there is one by now.
func (w *watch) conclude(text string, told events, now time.Time) Report {
	r, sure := w.judge(text, told)
	w.note(r, text, now)
	switch {
	case sure, r.Verdict != "" && now.Sub(w.since) >= w.opts.Settle:
		return r
	case now.Sub(w.began) >= w.deadline() && r.Verdict != "":
		return r
	case now.Sub(w.began) >= w.deadline():
		return Report{Verdict: Unclear, Why: fmt.Sprintf("no sign of either after %v; last output: %s", w.deadline(), lastLines(text, 2)),
			Remedy: "look at its screen; give it more time with --deadline, or the text that means it is up with --expect"}
	}
	return Report{}
}

// note records the time of the last change. A sender on the network may still be booting:
// systemd-networkd sends before file systems are checked, and fstab may name a missing one. So console
// output counts as well, until it stops.
func (w *watch) note(r Report, text string, now time.Time) {
	seen := r.Why
	if r.Verdict == Booted {
		seen += "\x00" + text
	}
	if seen != w.seen {
		w.seen, w.since = seen, now
	}
}

// see collects all text there is: of the serial port, and of the screen where that has one.
func (w *watch) see(ctx context.Context) (string, error) {
	text := w.console.text()
	shot, err := w.q.look(ctx)
	if errors.Is(err, errNoScreen) {
		return text, nil
	}
	if err != nil {
		return "", err
	}
	w.screen, w.blue = shot, shot.isBlue()
	if !shot.isText() {
		return text, nil
	}
	shown, err := w.q.read(ctx)
	return text + "\n" + shown, err
}

// speaks is the start of the description of a guest that is up because its cards send. An agent that
// answers later gives more information.
// all says more.
const speaks = "it speaks on its network"

// maxResets is how often a guest may start again on its way up: to relabel its files, or to install
// its drivers.
const maxResets = 4

// judge returns the verdict of the signs, and whether it is final: a failed guest may recover.
func (w *watch) judge(text string, told events) (Report, bool) {
	if w.expect != nil && w.expect.MatchString(text) {
		return Report{Verdict: Booted, Why: w.opts.Expect}, true
	}
	sign, seen := find(text)
	talkers := w.ear.talkers()
	switch {
	case sign.verdict == Booted:
		return Report{Verdict: Booted, Why: seen}, true
	case sign.verdict != Emergency && w.answered():
		return Report{Verdict: Booted, Why: agentAnswers}, true
	case sign.verdict != "":
		return Report{Verdict: sign.verdict, Why: seen, Remedy: sign.remedy}, false
	case told.panicked:
		return Report{Verdict: Panic, Why: "the guest reported a panic to its host", Remedy: driverRemedy}, true
	case w.blue:
		return Report{Verdict: BlueScreen, Why: "the screen is blue", Remedy: "the stop code is on the screen; 0x7B is the disk controller's driver: boot it with the hardware it had"}, false
	case told.stopped:
		return Report{Verdict: Stopped, Why: "the guest powered itself off; last output: " + lastLines(w.console.text(), 4), Remedy: "boot it with the hardware it had"}, true
	case told.resets > maxResets:
		return Report{Verdict: RebootLoop, Why: fmt.Sprintf("the guest started again %d times", told.resets), Remedy: driverRemedy}, true
	case len(talkers) > 0:
		return Report{Verdict: Booted, Why: speaks + ": " + talkers[0].MAC + " " + talkers[0].String()}, false
	}
	return Report{}, false
}

// picture keeps the last picture of the screen.
func (w *watch) picture() (string, error) {
	path, err := w.opts.keep("screen.png")
	if err != nil || path == "" || w.screen.RGBA == nil {
		return "", err
	}
	return path, w.screen.save(path)
}

// A console is what the guest prints on its serial port.
type console struct {
	mu   sync.Mutex
	last []byte // its end
	file *os.File
	size int64 // bytes of the file
	err  error
}

const (
	consoleTail = 64 << 10 // bytes that are looked at
	consoleMost = 16 << 20 // limit of the output in bytes: a guest may print for ever
)

func (c *console) read(r io.Reader) {
	for buf := make([]byte, 4096); ; {
		n, err := r.Read(buf)
		c.add(buf[:n])
		if err != nil {
			return
		}
	}
}

func (c *console) add(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = append(c.last, p...)
	if len(c.last) > 2*consoleTail {
		c.last = slices.Clone(c.last[len(c.last)-consoleTail:])
	}
	if c.file != nil && c.err == nil && c.size < consoleMost {
		n, err := c.file.Write(p)
		c.size, c.err = c.size+int64(n), err
	}
}

// Write is part of io.Writer.
func (c *console) Write(p []byte) (int, error) {
	c.add(p)
	return len(p), nil
}

// text is its end, as a terminal would show it.
func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return plain(string(c.last))
}

func (c *console) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return nil
	}
	if err := errors.Join(c.err, c.file.Close()); err != nil {
		return fault.New(fault.Full, "write the output of the serial port: %w", err).WithHint("free space, or select another file")
	}
	return nil
}
