package testboot

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// An interview queries QEMU's guest agent, in JSON over a serial channel (QEMU's
// docs/interop/qemu-ga-ref). The peer is untrusted and may be missing: a question without two answers
// in time is not repeated. The agent must first repeat an unpredictable number, also after each
// silence, so that no answer is matched with another question.
type interview struct {
	to  io.Writer
	now func() time.Time

	mu      sync.Mutex
	from    inbox
	at      int            // the question that is open; -1: none
	number  int64          // number to repeat
	asked   time.Time      // when the question was; of none, when the last was answered
	unread  int            // beginnings since one was answered
	silent  map[string]int // how often a command was not answered
	told    Agent
	answers bool // there is an agent
	whole   bool // all questions were asked
}

// A question is a command of the agent, with a function for its answer.
type question struct {
	command string
	take    func(*Agent, json.RawMessage)
}

// questions are asked in this order. The first one shows that an agent answers; old agents lack those
// after ping, and some are configured not to answer them.
var questions = []question{
	{"guest-sync-delimited", nil},
	{"guest-ping", nil},
	{"guest-get-osinfo", (*Agent).takeOS},
	{"guest-network-get-interfaces", (*Agent).takeCards},
	{"guest-get-host-name", (*Agent).takeName},
}

const (
	answerTime = 30 * time.Second // limit of one answer: an emulated guest is slow
	askAgain   = 2 * time.Second  // pause after all answers: addresses appear late
	maxUnread  = 64               // beginnings: they fit the channel's buffer, so that writing never waits
	maxSilent  = 2                // silences: one may be due to a guest that started again
)

func newInterview(to io.Writer, now func() time.Time) *interview {
	return &interview{to: to, now: now, at: -1, silent: map[string]int{}}
}

// listen reads what the guest sends, to its end.
func (i *interview) listen(from io.Reader) {
	for buf := make([]byte, 4096); ; {
		n, err := from.Read(buf)
		i.hear(buf[:n])
		if err != nil {
			return
		}
	}
}

// turn is called regularly. It starts when the guest has opened its end of the channel, and again after
// all answers, or after a question without an answer in time. A guest that restarts closes its end.
func (i *interview) turn(open bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	waited := i.now().Sub(i.asked)
	switch {
	case !open:
		i.at, i.asked = -1, time.Time{}
	case i.at < 0 && waited >= askAgain:
		i.begin()
	case i.at >= 0 && waited >= answerTime:
		i.silent[questions[i.at].command]++
		i.begin()
	}
}

// begin requests the repetition of a number. The byte before it makes the agent discard an incomplete
// command.
func (i *interview) begin() {
	i.asked = i.now()
	if i.unread == maxUnread {
		return
	}
	i.unread++
	i.at, i.number = 0, rand.Int64N(1<<53)
	i.send("\xff" + fmt.Sprintf(`{"execute": %q, "arguments": {"id": %d}}`, questions[0].command, i.number))
}

func (i *interview) send(text string) {
	_, _ = io.WriteString(i.to, text+"\n") // a QEMU that is gone is noticed elsewhere
}

// hear takes in what the guest sends.
func (i *interview) hear(p []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, m := range i.from.take(p) {
		if i.at >= 0 && i.answered(m) {
			i.next()
		}
	}
}

// answered reports whether a message answers the question that is open. An error does, too: the agent
// does not know the command, or may not.
func (i *interview) answered(m message) bool {
	var a struct {
		Return json.RawMessage `json:"return"`
		Error  json.RawMessage `json:"error"`
	}
	if m.delimited != (i.at == 0) || json.Unmarshal(m.text, &a) != nil || a.Return == nil && a.Error == nil {
		return false
	}
	if i.at == 0 {
		return string(a.Return) == fmt.Sprint(i.number)
	}
	if take := questions[i.at].take; take != nil && a.Return != nil {
		take(&i.told, a.Return)
	}
	return true
}

// next asks the question after the answered one.
func (i *interview) next() {
	if i.at == 0 {
		i.unread = 0
	}
	i.answers, i.asked = i.answers || i.at > 0, i.now()
	for i.at++; i.at < len(questions); i.at++ {
		if command := questions[i.at].command; i.silent[command] < maxSilent {
			i.send(fmt.Sprintf(`{"execute": %q}`, command))
			return
		}
	}
	i.at, i.whole = -1, true
}

// heard returns the answers so far: nil without any. whole reports that all questions were asked.
func (i *interview) heard() (told *Agent, whole bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.answers {
		return nil, false
	}
	told = new(i.told)
	return told, i.whole
}
