package testboot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// fakeAgent is a QEMU guest agent that supports the commands of a trial, see docs/interop/qemu-ga-ref of QEMU. Its
// answers are queued in out.
type fakeAgent struct {
	t        *testing.T
	out      []byte
	commands []string                                // received commands, in order
	answers  func(f *fakeAgent, command string) bool // replaces the default answer if it returns true
}

const (
	debianAnswer = `{"return": {"name": "Debian GNU/Linux", "kernel-release": "6.1.0-56-cloud-amd64", "version": "12 (bookworm)", "pretty-name": "Debian GNU/Linux 12 (bookworm)", "version-id": "12", "kernel-version": "#1 SMP", "machine": "x86_64", "id": "debian"}}`
	cardsAnswer  = `{"return": [{"name": "lo", "ip-addresses": [{"ip-address-type": "ipv4", "ip-address": "127.0.0.1", "prefix": 8}], "hardware-address": "00:00:00:00:00:00"}, ` +
		`{"name": "eth0", "ip-addresses": [{"ip-address-type": "ipv4", "ip-address": "192.0.2.10", "prefix": 24}, {"ip-address-type": "ipv6", "ip-address": "fe80::250:56ff:feab:cd01", "prefix": 64}], "hardware-address": "00:50:56:AB:cd:01"}]}`
	unknownCommand = `{"error": {"class": "CommandNotFound", "desc": "The command guest-get-osinfo has not been found"}}`
	allAnswers     = "Debian GNU/Linux 12 (bookworm), kernel 6.1.0-56-cloud-amd64, host name web01, eth0 192.0.2.10"
)

func (f *fakeAgent) send(text string) { f.out = append(f.out, text...) }

func (f *fakeAgent) Write(p []byte) (int, error) {
	var c struct {
		Execute   string
		Arguments struct{ ID int64 }
	}
	text := bytes.TrimPrefix(p, []byte{0xff})
	if err := json.Unmarshal(text, &c); err != nil {
		f.t.Errorf("the agent receives %q: %v", p, err)
	}
	if len(text) < len(p) { // the byte 0xff flushes the parser, which causes an error message
		f.send(`{"error": {"class": "GenericError", "desc": "JSON parse error, stray '\xff'"}}` + "\n")
	}
	f.commands = append(f.commands, c.Execute)
	if f.answers != nil && f.answers(f, c.Execute) {
		return len(p), nil
	}
	switch c.Execute {
	case "guest-sync-delimited":
		f.send(fmt.Sprintf("\xff{\"return\": %d}\n", c.Arguments.ID))
	case "guest-ping":
		f.send(`{"return": {}}` + "\n")
	case "guest-get-osinfo":
		f.send(debianAnswer + "\n")
	case "guest-network-get-interfaces":
		f.send(cardsAnswer + "\n")
	case "guest-get-host-name":
		f.send(`{"return": {"host-name": "web01"}}` + "\n")
	default:
		f.t.Errorf("the agent receives the unexpected command %q", c.Execute)
	}
	return len(p), nil
}

// session sends queries to a fake agent, with a simulated clock.
type session struct {
	*agentQueries
	f     *fakeAgent
	clock time.Time
}

func newSession(t *testing.T, answers func(f *fakeAgent, command string) bool) *session {
	k := &session{f: &fakeAgent{t: t, answers: answers}, clock: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)}
	k.agentQueries = newAgentQueries(k.f, func() time.Time { return k.clock })
	return k
}

// runSecond advances the clock by a second and receives all queued answers, a few bytes at a time.
func (k *session) runSecond(open bool) {
	k.clock = k.clock.Add(time.Second)
	k.poll(open)
	for len(k.f.out) > 0 {
		out := k.f.out
		n := min(len(out), 7)
		if len(out) > 1<<16 {
			n = len(out)
		}
		k.f.out = out[n:]
		k.receive(out[:n])
	}
}

func (k *session) runSeconds(n int) *session {
	for range n {
		k.runSecond(true)
	}
	return k
}

func answerWith(command, text string) func(*fakeAgent, string) bool {
	return func(f *fakeAgent, c string) bool {
		if c == command {
			f.send(text)
		}
		return c == command
	}
}

// Answers of agents are parsed, also those of old and slow agents.
func TestInterview(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers func(*fakeAgent, string) bool
		want    string
	}{
		"an agent": {nil, allAnswers},
		"half a message from before": {func(f *fakeAgent, c string) bool {
			return c == "guest-sync-delimited" && len(f.commands) == 1 && sendHalfAnswer(f)
		}, allAnswers},
		"an old agent":           {answerWith("guest-get-osinfo", unknownCommand+"\n"), "host name web01, eth0 192.0.2.10"},
		"a disabled command":     {answerWith("guest-network-get-interfaces", unknownCommand+"\n"), "Debian GNU/Linux 12 (bookworm), kernel 6.1.0-56-cloud-amd64, host name web01"},
		"a missing answer":       {answerWith("guest-network-get-interfaces", ""), "Debian GNU/Linux 12 (bookworm), kernel 6.1.0-56-cloud-amd64, host name web01"},
		"other types":            {answerWith("guest-get-osinfo", `{"return": [1, 2]}`+"\n"), "host name web01, eth0 192.0.2.10"},
		"an invalid address":     {answerWith("guest-network-get-interfaces", `{"return": [{"name": "a", "ip-addresses": [{"ip-address": "300.1.1.1", "prefix": 24}, {"ip-address": "10.0.0.1", "prefix": 77}]}]}`+"\n"), "Debian GNU/Linux 12 (bookworm), kernel 6.1.0-56-cloud-amd64, host name web01"},
		"escapes for a terminal": {answerWith("guest-get-host-name", `{"return": {"host-name": "a\u001b[2Jb\nc"}}`+"\n"), "Debian GNU/Linux 12 (bookworm), kernel 6.1.0-56-cloud-amd64, host name a [2Jb c, eth0 192.0.2.10"},
		"a line too long, then again": {func(f *fakeAgent, c string) bool {
			return c == "guest-get-host-name" && len(f.commands) == 5 && sendHugeAnswer(f)
		}, allAnswers},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent, whole := newSession(t, c.answers).runSeconds(120).result()
			if agent == nil || !whole || agent.String() != c.want {
				t.Errorf("agent %v, whole %v; want %s", agent, whole, c.want)
			}
		})
	}
}

// sendHalfAnswer sends an incomplete answer.
func sendHalfAnswer(f *fakeAgent) bool {
	f.send(`{"return": {"host-name": "of the`)
	return true
}

func sendHugeAnswer(f *fakeAgent) bool {
	f.send(`{"return": {"host-name": "` + strings.Repeat("x", maxMessage) + `"}}` + "\n")
	return true
}

// If the other end does not repeat the number of guest-sync-delimited after the byte 0xff, it is not an agent.
func TestNonAgentResponsesAreIgnored(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no answer":              "",
		"another number":         "\xff{\"return\": 4711}\n",
		"no number":              "\xff{\"return\": {}}\n\xff{\"return\": null}\n",
		"unexpected answers":     "{\"return\": {}}\n{\"return\": {}}\n",
		"a login":                "\r\nDebian GNU/Linux 12 web01 hvc0\r\n\r\nweb01 login: ",
		"a line that never ends": "\xff" + strings.Repeat("{", 3*maxMessage),
		"lines without end":      strings.Repeat("\xff{\"return\": 1}\n", 1<<16),
		"deep":                   "\xff" + strings.Repeat("[", 1<<19) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newSession(t, func(f *fakeAgent, _ string) bool { f.send(text); return true }).runSeconds(60)
			if agent, _ := k.result(); agent != nil {
				t.Errorf("got agent %v, want none", agent)
			}
			if cap(k.from.line) > 2*maxMessage {
				t.Errorf("the line buffer has %d bytes, want at most %d", cap(k.from.line), 2*maxMessage)
			}
		})
	}
}

// A late answer is not taken as the answer to a later command: the agent is synchronized with a new number first.
func TestSlowAgent(t *testing.T) {
	t.Parallel()
	var late []byte
	k := newSession(t, nil)
	k.f.answers = func(f *fakeAgent, c string) bool {
		if c == "guest-get-osinfo" && late == nil {
			late = []byte(`{"return": {"pretty-name": "late"}}` + "\n")
			return true
		}
		return false
	}
	k.runSeconds(int(answerTime/time.Second) + 1)
	k.f.answers = func(f *fakeAgent, c string) bool { // sends the late answer first
		f.out, late = append(late, f.out...), nil
		return false
	}
	agent, whole := k.runSeconds(5).result()
	if agent == nil || !whole || agent.String() != allAnswers {
		t.Errorf("agent %v, whole %v; want %s", agent, whole, allAnswers)
	}
}

// If the guest restarts during an answer, the queries start again from the beginning.
func TestAgentQueriesRestartAfterReboot(t *testing.T) {
	t.Parallel()
	k := newSession(t, answerWith("guest-network-get-interfaces", cardsAnswer[:100])).runSeconds(3)
	if _, whole := k.result(); whole {
		t.Fatal("the answers are complete too early")
	}
	k.runSecond(false)
	k.f.answers = nil
	before := len(k.f.commands)
	agent, whole := k.runSeconds(1).result()
	if !whole || agent.String() != allAnswers || k.f.commands[before] != "guest-sync-delimited" {
		t.Errorf("agent %v, whole %v, commands %q", agent, whole, k.f.commands[before:])
	}
}

// No command is sent while the guest has not opened the channel. If the guest opens it repeatedly but reads nothing,
// the number of commands is limited. Otherwise they would fill the channel.
func TestAgentCommandsAreLimitedWithoutReader(t *testing.T) {
	t.Parallel()
	k := newSession(t, func(*fakeAgent, string) bool { return true })
	for range 100 {
		k.runSecond(false)
	}
	if len(k.f.commands) > 0 {
		t.Fatalf("commands %q are sent on a closed channel", k.f.commands)
	}
	for n := range 10_000 {
		k.runSecond(n%2 == 0)
	}
	if len(k.f.commands) != maxUnread {
		t.Errorf("%d commands are sent, want %d", len(k.f.commands), maxUnread)
	}
}

// The agent is queried again after it answered everything, because addresses can appear late. The last answer
// counts.
func TestAgentIsQueriedAgain(t *testing.T) {
	t.Parallel()
	k := newSession(t, answerWith("guest-network-get-interfaces", `{"return": [{"name": "eth0", "hardware-address": "00:50:56:ab:cd:01"}]}`+"\n")).runSeconds(1)
	if agent, whole := k.result(); !whole || len(agent.Cards) != 1 || len(agent.Cards[0].Addresses) != 0 {
		t.Fatalf("agent %+v, whole %v; want one card without addresses", agent, whole)
	}
	k.f.answers = nil
	if agent, _ := k.runSeconds(3).result(); agent.String() != allAnswers {
		t.Errorf("agent %v, want %s", agent, allAnswers)
	}
}

// The messages do not depend on the sizes of the reads, and the stored answers are limited.
func FuzzInterview(f *testing.F) {
	f.Add([]byte("\xff{\"return\": 1}\n{\"return\": {}}\n"+debianAnswer+"\n"+cardsAnswer+"\n"), uint8(3))
	f.Add([]byte("{\"return\": {\"host-name\": \"x\"}}\n\xff\xff\n\n{"), uint8(1))
	f.Add([]byte("\xff"+unknownCommand+"\n"+`{"return": [{"name": "a", "ip-addresses": [{"ip-address": "fe80::1%3", "prefix": 64}]}]}`+"\n"), uint8(64))
	f.Fuzz(func(t *testing.T, text []byte, n uint8) {
		var whole, cut messageSplitter
		want := whole.split(text)
		var got []message
		for rest := text; len(rest) > 0; {
			k := min(len(rest), int(n)+1)
			got, rest = append(got, cut.split(rest[:k])...), rest[k:]
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("messages %v, read in parts %v", want, got)
		}
		k := newSession(t, func(*fakeAgent, string) bool { return true })
		k.poll(true)
		k.receive(text)
		if agent, _ := k.result(); agent != nil {
			t.Errorf("an agent without the right number is accepted: %v", agent)
		}
		for k.at = 1; k.at < len(questions); k.at++ { // continue as if the number were right
			for _, m := range want {
				k.isAnswer(m)
			}
		}
		if len(k.told.Cards) > maxCards || len(k.told.String()) > (maxCards*maxAddresses+3)*(2*fault.MaxLine) {
			t.Errorf("stored answers exceed the limits: %v", k.told)
		}
	})
}
