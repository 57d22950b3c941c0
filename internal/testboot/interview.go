package testboot

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// An interview asks QEMU's guest agent, in JSON over a serial channel, what it knows: QEMU's
// docs/interop/qemu-ga-ref. Who answers may be anybody, or nobody: a question that is not answered in
// time twice is not asked again, and the agent first has to repeat a number that it cannot guess, after each
// silence too, so that nothing is taken for an answer that was meant for another question.
type interview struct {
	to  io.Writer
	now func() time.Time

	mu      sync.Mutex
	from    inbox
	at      int            // the question that is open; -1: none
	number  int64          // that is to be repeated
	asked   time.Time      // when the question was; of none, when the last was answered
	unread  int            // beginnings since one was answered
	silent  map[string]int // how often a command was not answered
	told    Agent
	answers bool // there is an agent
	whole   bool // it was asked everything
}

// A question is a command of the agent's, and what becomes of the answer.
type question struct {
	command string
	take    func(*Agent, json.RawMessage)
}

// questions are asked in this order. The first one says that somebody is there who was not there by
// chance; old agents do not know those behind ping, and some are forbidden to answer them.
var questions = []question{
	{"guest-sync-delimited", nil},
	{"guest-ping", nil},
	{"guest-get-osinfo", (*Agent).takeOS},
	{"guest-network-get-interfaces", (*Agent).takeCards},
	{"guest-get-host-name", (*Agent).takeName},
}

const (
	answerTime = 30 * time.Second // for one answer: an emulated guest is slow
	askAgain   = 2 * time.Second  // after all was told: addresses come late
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

// turn is called every now and then. It begins when the guest has opened its end of the channel, and
// again after all was told, or a question was not answered in time. A guest that starts again closes
// its end.
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

// begin asks for a number to be repeated. The byte before it has the agent forget half a command that
// somebody may have sent it.
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

// next asks the question behind the one that was answered.
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

// heard is what was told so far: nil while nobody answers. whole says that everything was asked.
func (i *interview) heard() (told *Agent, whole bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.answers {
		return nil, false
	}
	told = new(i.told)
	return told, i.whole
}
