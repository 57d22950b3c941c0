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

// An observer observes a guest and determines the verdict.
type observer struct {
	q    *qemu    // running QEMU
	m    *machine // machine of the guest
	opts Options  // options with defaults applied

	console console        // output of the serial port
	packets capture        // packets of the cards
	agent   *agentQueries  // interview of the agent; nil if the VM has no channel for it
	expect  *regexp.Regexp // expected text; nil accepts only the known signs
	readers sync.WaitGroup // goroutines that read the output

	began  time.Time // time of power-on
	screen screen    // last picture of the display
	blue   bool      // true if the display shows a stop screen
	seen   string    // last observed text
	since  time.Time // time since which seen is unchanged

	up   *Report   // report of a guest that is up; nil before. Its agent may still answer.
	upAt time.Time // time of up
}

// newObserver returns an observer. The trial's time starts now.
func newObserver(q *qemu, m *machine, o Options) *observer {
	w := &observer{q: q, m: m, opts: o, began: o.Now()}
	w.packets.ipv4 = m.usesEFI()
	if q.agent != nil {
		w.agent = newAgentQueries(q.agent, o.Now)
	}
	if o.Expect != "" {
		w.expect = regexp.MustCompile(regexp.QuoteMeta(o.Expect))
	}
	return w
}

// deadline returns the limit of the trial: that of Options, or a default that depends
// on the accelerator.
func (w *observer) deadline() time.Duration {
	switch {
	case w.opts.Deadline > 0:
		return w.opts.Deadline
	case w.m.accel == KVM:
		return 5 * time.Minute
	}
	return 15 * time.Minute
}

// run observes until there is a verdict, and kills the guest.
func (w *observer) run(ctx context.Context) (Report, error) {
	keep, err := w.startReaders()
	if err == nil {
		err = w.q.monitor.execute(ctx, "qmp_capabilities", map[string]any{})
	}
	var r Report
	for err == nil && r.Verdict == "" {
		r, err = w.observeOnce(ctx)
	}
	if err == nil {
		r.Elapsed = w.opts.Now().Sub(w.began).Round(time.Millisecond)
		r.Screen, err = w.savePicture()
	}
	w.q.kill()
	w.readers.Wait()
	// QEMU's exit is only an error if it ended before it was killed.
	ended := w.q.wait()
	if errors.Is(err, errHungUp) { // its own output has more information
		err = cmp.Or(ended, err)
	}
	r.Network, r.Serial = w.packets.snapshot(), keep
	w.addAgentAnswers(&r)
	return r, errors.Join(err, w.console.close())
}

// startReaders starts the goroutines that read the serial port, the cards and the
// agent. It returns the path of the log of the serial port, or "".
func (w *observer) startReaders() (string, error) {
	keep, err := w.opts.keepPath("serial.log")
	if err == nil && keep != "" {
		w.console.file, err = os.Create(keep)
	}
	w.readers.Go(func() { w.console.readFrom(w.q.serial) })
	for _, c := range w.q.cards {
		w.readers.Go(func() { w.packets.readFrames(c) })
	}
	if w.agent != nil {
		w.readers.Go(func() { w.agent.readAnswers(w.q.agent) })
	}
	return keep, err
}

// observeOnce waits for a second and evaluates the observations. It reads QEMU's events
// before the wait: a guest may print that it is up and then power itself off, and the
// text must be evaluated first.
func (w *observer) observeOnce(ctx context.Context) (Report, error) {
	// See the comment above: the events must not be newer than the text.
	told := w.q.monitor.told.snapshot()
	if w.agent != nil {
		w.agent.poll(told.agent)
	}
	select {
	case <-w.opts.After(time.Second):
	case <-w.q.monitor.done:
		return Report{}, errHungUp
	case <-ctx.Done():
		return Report{}, ctx.Err()
	}
	text, err := w.collectText(ctx)
	if err != nil {
		return Report{}, err
	}
	return w.verdictOrWait(text, told, w.opts.Now()), nil
}

// verdictOrWait returns the verdict, or an empty report before it is known or while the
// agent may still answer.
func (w *observer) verdictOrWait(text string, told events, now time.Time) Report {
	if w.up == nil {
		r := w.verdictSoFar(text, told, now)
		if !r.Booted() {
			return r
		}
		w.up, w.upAt = &r, now
	}
	if w.awaitsAgent(text, told, now) {
		return Report{}
	}
	return *w.up
}

// verdictSoFar returns the verdict, or an empty report before it is known. A sign that
// is not final must last for Options.Settle.
func (w *observer) verdictSoFar(text string, told events, now time.Time) Report {
	r, sure := w.judgeSigns(text, told)
	w.noteChange(r, text, now)
	switch {
	case sure, r.Verdict != "" && now.Sub(w.since) >= w.opts.Settle:
		return r
	case now.Sub(w.began) >= w.deadline() && r.Verdict != "":
		return r
	case now.Sub(w.began) >= w.deadline():
		return Report{Verdict: Unclear, Reason: fmt.Sprintf("no sign of success or failure after %v; last output: %s", w.deadline(), lastLines(text, 2)),
			Remedy: "see its screen; set a longer --deadline, or set a text of its console that means that it has booted: --expect TEXT"}
	}
	return Report{}
}

// noteChange records the time of the last change. A guest that sends packets may still
// be booting: systemd-networkd sends before file systems are checked, and fstab may
// name a missing one. So output on the console counts as a change as well.
func (w *observer) noteChange(r Report, text string, now time.Time) {
	seen := r.Reason
	if r.Verdict == Booted {
		seen += "\x00" + text
	}
	if seen != w.seen {
		w.seen, w.since = seen, now
	}
}

// collectText returns the text of the serial port and of the text screen, if there is
// one.
func (w *observer) collectText(ctx context.Context) (string, error) {
	text := w.console.text()
	shot, err := w.q.takePicture(ctx)
	if errors.Is(err, errNoScreen) {
		return text, nil
	}
	if err != nil {
		return "", err
	}
	// The last picture is kept for the report.
	w.screen, w.blue = shot, shot.isBlue()
	if !shot.isText() {
		return text, nil
	}
	shown, err := w.q.readText(ctx)
	return text + "\n" + shown, err
}

// sendsPackets starts the description of a guest that is up because its cards send
// packets. The answers of an agent replace it.
const sendsPackets = "it sends packets on its network"

// maxResets is the number of restarts that a guest may need while it boots, to relabel
// its files or to install its drivers.
const maxResets = 4

// judgeSigns returns the verdict of the current signs, and whether it is final. A
// failed guest may recover.
func (w *observer) judgeSigns(text string, told events) (Report, bool) {
	if w.expect != nil && w.expect.MatchString(text) {
		return Report{Verdict: Booted, Reason: w.opts.Expect}, true
	}
	sign, seen := findSign(text)
	senders := w.packets.snapshot()
	switch {
	case sign.verdict == Booted:
		return Report{Verdict: Booted, Reason: seen}, true
	case sign.verdict != Emergency && w.hasAgentAnswer():
		return Report{Verdict: Booted, Reason: agentAnswers}, true
	case sign.verdict != "":
		return Report{Verdict: sign.verdict, Reason: seen, Remedy: sign.remedy}, false
	case told.panicked:
		return Report{Verdict: Panic, Reason: "the guest reported a panic to its host", Remedy: driverRemedy}, true
	case w.blue:
		return Report{Verdict: BlueScreen, Reason: "the screen is blue", Remedy: "see the stop code on the screen; for 0x7B, a missing driver of the disk controller, use --hardware compat"}, false
	case told.stopped:
		return Report{Verdict: Stopped, Reason: "the guest powered itself off; last output: " + lastLines(w.console.text(), 4), Remedy: "boot it with its previous hardware: --hardware compat"}, true
	case told.resets > maxResets:
		return Report{Verdict: RebootLoop, Reason: fmt.Sprintf("the guest restarted %d times", told.resets), Remedy: driverRemedy}, true
	case len(senders) > 0:
		return Report{Verdict: Booted, Reason: sendsPackets + ": " + senders[0].MAC + " " + senders[0].String()}, false
	}
	return Report{}, false
}

// savePicture writes the last picture of the display, if files are kept. It returns its
// path, or "".
func (w *observer) savePicture() (string, error) {
	path, err := w.opts.keepPath("screen.png")
	if err != nil || path == "" || w.screen.RGBA == nil {
		return "", err
	}
	return path, w.screen.savePNG(path)
}

// A console collects the output of a serial port. It is safe for concurrent use.
type console struct {
	mu   sync.Mutex // protects the fields below
	last []byte     // end of the output
	file *os.File   // log of the output; nil if not kept
	size int64      // bytes in the file
	err  error      // first error of a write
}

const (
	consoleTail = 64 << 10 // bytes to search for signs
	consoleMost = 16 << 20 // limit of the log in bytes; a guest may print without end
)

// readFrom appends the output of r until its end.
func (c *console) readFrom(r io.Reader) {
	for buf := make([]byte, 4096); ; {
		n, err := r.Read(buf)
		c.append(buf[:n])
		if err != nil {
			return
		}
	}
}

// append appends output to the end and to the log.
func (c *console) append(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = append(c.last, p...)
	// Copying at twice the size keeps the cost per byte constant.
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
	c.append(p)
	return len(p), nil
}

// text returns the end of the output without control sequences.
func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return plainText(string(c.last))
}

// close closes the log, and returns the first error of a write to it.
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
