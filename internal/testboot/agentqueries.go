package testboot

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// agentQueries queries QEMU's guest agent, in JSON over a serial channel (QEMU's
// docs/interop/qemu-ga-ref). The agent is untrusted and may not exist. A question that
// was not answered in time twice is not repeated. First, and after each timeout, the
// agent must repeat a random number, so that no answer is assigned to another question.
type agentQueries struct {
	to  io.Writer        // channel to the agent
	now func() time.Time // clock

	mu      sync.Mutex      // protects the fields below
	from    messageSplitter // splits the agent's data
	at      int             // index of the open question, or -1
	number  int64           // number to repeat
	asked   time.Time       // time of the open question, or of the last answer
	unread  int             // number of starts since the last answer to one
	silent  map[string]int  // number of timeouts by command
	told    Agent           // answers so far
	answers bool            // true if an agent has answered
	whole   bool            // true after all questions
}

// A question is a command of the agent with a function that stores its result.
type question struct {
	command string                        // name of the command
	take    func(*Agent, json.RawMessage) // stores the result; nil if it is ignored
}

// questions lists the commands in order. The first one shows that an agent answers. Old
// agents have only guest-ping, and an administrator may disable commands.
var questions = []question{
	{"guest-sync-delimited", nil},
	{"guest-ping", nil},
	{"guest-get-osinfo", (*Agent).takeOS},
	{"guest-network-get-interfaces", (*Agent).takeCards},
	{"guest-get-host-name", (*Agent).takeName},
}

const (
	answerTime = 30 * time.Second // limit of one answer: an emulated guest is slow
	askAgain   = 2 * time.Second  // pause after all answers; addresses may appear late
	maxUnread  = 64               // limit of unanswered starts; they fit into the channel's buffer, so that writes never block
	maxSilent  = 2                // limit of timeouts per command; one may be due to a restart of the guest
)

// newAgentQueries returns queries that write to the channel to. now is the clock.
func newAgentQueries(to io.Writer, now func() time.Time) *agentQueries {
	return &agentQueries{to: to, now: now, at: -1, silent: map[string]int{}}
}

// readAnswers processes the data of the guest until the end of from.
func (i *agentQueries) readAnswers(from io.Reader) {
	for buf := make([]byte, 4096); ; {
		n, err := from.Read(buf)
		i.receive(buf[:n])
		if err != nil {
			return
		}
	}
}

// poll must be called regularly. open reports whether the guest has opened its end of
// the channel; a guest that restarts closes it. poll starts the questions when the
// channel is opened, again some time after all answers, and after a timeout.
func (i *agentQueries) poll(open bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	waited := i.now().Sub(i.asked)
	switch {
	case !open:
		i.at, i.asked = -1, time.Time{}
	case i.at < 0 && waited >= askAgain:
		i.startOver()
	case i.at >= 0 && waited >= answerTime:
		// A command that times out twice is skipped from then on.
		i.silent[questions[i.at].command]++
		i.startOver()
	}
}

// startOver requests the repetition of a random number. The byte 0xFF before the
// command makes the agent discard an incomplete one. mu must be held.
func (i *agentQueries) startOver() {
	i.asked = i.now()
	// The channel is full: the guest does not read it.
	if i.unread == maxUnread {
		return
	}
	i.unread++
	i.at, i.number = 0, rand.Int64N(1<<53)
	i.writeCommand("\xff" + fmt.Sprintf(`{"execute": %q, "arguments": {"id": %d}}`, questions[0].command, i.number))
}

// writeCommand writes one line. Errors are ignored: the end of QEMU is detected by its
// monitor.
func (i *agentQueries) writeCommand(text string) {
	_, _ = io.WriteString(i.to, text+"\n") // a QEMU that is gone is noticed elsewhere
}

// receive processes data of the guest.
func (i *agentQueries) receive(p []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, m := range i.from.split(p) {
		if i.at >= 0 && i.isAnswer(m) {
			i.sendNext()
		}
	}
}

// isAnswer reports whether a message answers the open question, and stores its result.
// An error is also an answer: the agent does not have the command, or may not run it.
// mu must be held.
func (i *agentQueries) isAnswer(m message) bool {
	var a struct {
		Return json.RawMessage `json:"return"`
		Error  json.RawMessage `json:"error"`
	}
	// Only the answer to guest-sync-delimited has the byte 0xFF before it.
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

// sendNext sends the next question. It skips those that timed out too often. mu must be
// held.
func (i *agentQueries) sendNext() {
	if i.at == 0 {
		i.unread = 0
	}
	i.answers, i.asked = i.answers || i.at > 0, i.now()
	for i.at++; i.at < len(questions); i.at++ {
		if command := questions[i.at].command; i.silent[command] < maxSilent {
			i.writeCommand(fmt.Sprintf(`{"execute": %q}`, command))
			return
		}
	}
	i.at, i.whole = -1, true
}

// result returns a copy of the answers so far, or nil before the first. whole reports
// whether all questions were asked.
func (i *agentQueries) result() (told *Agent, whole bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.answers {
		return nil, false
	}
	told = new(i.told)
	return told, i.whole
}
