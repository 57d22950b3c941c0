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

// A fakeAgent is QEMU's guest agent as its reference describes it (docs/interop/qemu-ga-ref), as far as
// a trial asks. What it answers waits until somebody reads it.
type fakeAgent struct {
	t       *testing.T
	out     []byte
	asked   []string                                // commands, in order
	answers func(f *fakeAgent, command string) bool // in its place, if it reports so
}

const (
	debian = `{"return": {"name": "Debian GNU/Linux", "kernel-release": "6.1.0-56-cloud-amd64", "version": "12 (bookworm)", "pretty-name": "Debian GNU/Linux 12 (bookworm)", "version-id": "12", "kernel-version": "#1 SMP", "machine": "x86_64", "id": "debian"}}`
	cards  = `{"return": [{"name": "lo", "ip-addresses": [{"ip-address-type": "ipv4", "ip-address": "127.0.0.1", "prefix": 8}], "hardware-address": "00:00:00:00:00:00"}, ` +
		`{"name": "eth0", "ip-addresses": [{"ip-address-type": "ipv4", "ip-address": "192.0.2.10", "prefix": 24}, {"ip-address-type": "ipv6", "ip-address": "fe80::250:56ff:feab:cd01", "prefix": 64}], "hardware-address": "00:50:56:AB:cd:01"}]}`
	unknown = `{"error": {"class": "CommandNotFound", "desc": "The command guest-get-osinfo has not been found"}}`
	allTold = "Debian GNU/Linux 12 (bookworm), kernel 6.1.0-56-cloud-amd64, host name web01, eth0 192.0.2.10"
)

func (f *fakeAgent) say(text string) { f.out = append(f.out, text...) }

func (f *fakeAgent) Write(p []byte) (int, error) {
	var c struct {
		Execute   string
		Arguments struct{ ID int64 }
	}
	text := bytes.TrimPrefix(p, []byte{0xff})
	if err := json.Unmarshal(text, &c); err != nil {
		f.t.Errorf("it is sent %q: %v", p, err)
	}
	if len(text) < len(p) { // that flushes its parser, which says so
		f.say(`{"error": {"class": "GenericError", "desc": "JSON parse error, stray '\xff'"}}` + "\n")
	}
	f.asked = append(f.asked, c.Execute)
	if f.answers != nil && f.answers(f, c.Execute) {
		return len(p), nil
	}
	switch c.Execute {
	case "guest-sync-delimited":
		f.say(fmt.Sprintf("\xff{\"return\": %d}\n", c.Arguments.ID))
	case "guest-ping":
		f.say(`{"return": {}}` + "\n")
	case "guest-get-osinfo":
		f.say(debian + "\n")
	case "guest-network-get-interfaces":
		f.say(cards + "\n")
	case "guest-get-host-name":
		f.say(`{"return": {"host-name": "web01"}}` + "\n")
	default:
		f.t.Errorf("it is asked for %q", c.Execute)
	}
	return len(p), nil
}

// A talk is an interview of a fake agent, by a clock that is told.
type talk struct {
	*agentQueries
	f     *fakeAgent
	clock time.Time
}

func newTalk(t *testing.T, answers func(f *fakeAgent, command string) bool) *talk {
	k := &talk{f: &fakeAgent{t: t, answers: answers}, clock: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)}
	k.agentQueries = newAgentQueries(k.f, func() time.Time { return k.clock })
	return k
}

// second lets one pass, in which all that was said is heard, a few bytes at a time.
func (k *talk) second(open bool) {
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

func (k *talk) seconds(n int) *talk {
	for range n {
		k.second(true)
	}
	return k
}

func instead(command, text string) func(*fakeAgent, string) bool {
	return func(f *fakeAgent, c string) bool {
		if c == command {
			f.say(text)
		}
		return c == command
	}
}

// What agents say, old ones and slow ones too, is taken for what it is.
func TestInterview(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers func(*fakeAgent, string) bool
		want    string
	}{
		"an agent":                    {nil, allTold},
		"half a message from before":  {func(f *fakeAgent, c string) bool { return c == "guest-sync-delimited" && len(f.asked) == 1 && half(f) }, allTold},
		"one that is old":             {instead("guest-get-osinfo", unknown+"\n"), "host name web01, eth0 192.0.2.10"},
		"one that may not tell":       {instead("guest-network-get-interfaces", unknown+"\n"), "Debian GNU/Linux 12 (bookworm), kernel 6.1.0-56-cloud-amd64, host name web01"},
		"one that never tells":        {instead("guest-network-get-interfaces", ""), "Debian GNU/Linux 12 (bookworm), kernel 6.1.0-56-cloud-amd64, host name web01"},
		"other types":                 {instead("guest-get-osinfo", `{"return": [1, 2]}`+"\n"), "host name web01, eth0 192.0.2.10"},
		"an address that is none":     {instead("guest-network-get-interfaces", `{"return": [{"name": "a", "ip-addresses": [{"ip-address": "300.1.1.1", "prefix": 24}, {"ip-address": "10.0.0.1", "prefix": 77}]}]}`+"\n"), "Debian GNU/Linux 12 (bookworm), kernel 6.1.0-56-cloud-amd64, host name web01"},
		"escapes for a terminal":      {instead("guest-get-host-name", `{"return": {"host-name": "a\u001b[2Jb\nc"}}`+"\n"), "Debian GNU/Linux 12 (bookworm), kernel 6.1.0-56-cloud-amd64, host name a [2Jb c, eth0 192.0.2.10"},
		"a line too long, then again": {func(f *fakeAgent, c string) bool { return c == "guest-get-host-name" && len(f.asked) == 5 && huge(f) }, allTold},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told, whole := newTalk(t, c.answers).seconds(120).result()
			if told == nil || !whole || told.String() != c.want {
				t.Errorf("told %v, whole %v; want %s", told, whole, c.want)
			}
		})
	}
}

// half leaves an answer unfinished.
func half(f *fakeAgent) bool {
	f.say(`{"return": {"host-name": "of the`)
	return true
}

func huge(f *fakeAgent) bool {
	f.say(`{"return": {"host-name": "` + strings.Repeat("x", maxMessage) + `"}}` + "\n")
	return true
}

// Who does not repeat the number, after the byte that begins an answer to that, is no agent.
func TestWhatIsNoAgent(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nobody":                 "",
		"another number":         "\xff{\"return\": 4711}\n",
		"no number":              "\xff{\"return\": {}}\n\xff{\"return\": null}\n",
		"an answer out of turn":  "{\"return\": {}}\n{\"return\": {}}\n",
		"a login":                "\r\nDebian GNU/Linux 12 web01 hvc0\r\n\r\nweb01 login: ",
		"a line that never ends": "\xff" + strings.Repeat("{", 3*maxMessage),
		"lines without end":      strings.Repeat("\xff{\"return\": 1}\n", 1<<16),
		"deep":                   "\xff" + strings.Repeat("[", 1<<19) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newTalk(t, func(f *fakeAgent, _ string) bool { f.say(text); return true }).seconds(60)
			if told, _ := k.result(); told != nil {
				t.Errorf("told %v", told)
			}
			if cap(k.from.line) > 2*maxMessage {
				t.Errorf("%d bytes are kept", cap(k.from.line))
			}
		})
	}
}

// An answer that comes when another question is open answers none: the number of that one is new.
func TestSlowAgent(t *testing.T) {
	t.Parallel()
	var late []byte
	k := newTalk(t, nil)
	k.f.answers = func(f *fakeAgent, c string) bool {
		if c == "guest-get-osinfo" && late == nil {
			late = []byte(`{"return": {"pretty-name": "late"}}` + "\n")
			return true
		}
		return false
	}
	k.seconds(int(answerTime/time.Second) + 1)
	k.f.answers = func(f *fakeAgent, c string) bool { // what was asked before is answered first
		f.out, late = append(late, f.out...), nil
		return false
	}
	told, whole := k.seconds(5).result()
	if told == nil || !whole || told.String() != allTold {
		t.Errorf("told %v, whole %v", told, whole)
	}
}

// A guest that starts again in the middle of an answer is asked again, from the beginning.
func TestAgentOfAGuestThatStartsAgain(t *testing.T) {
	t.Parallel()
	k := newTalk(t, instead("guest-network-get-interfaces", cards[:100])).seconds(3)
	if _, whole := k.result(); whole {
		t.Fatal("all was told")
	}
	k.second(false)
	k.f.answers = nil
	before := len(k.f.asked)
	told, whole := k.seconds(1).result()
	if !whole || told.String() != allTold || k.f.asked[before] != "guest-sync-delimited" {
		t.Errorf("told %v, whole %v, by %q", told, whole, k.f.asked[before:])
	}
}

// A guest that has not opened the channel is asked nothing, and one that opens it again and again and
// reads nothing not often enough to fill it.
func TestWhoDoesNotListenIsAskedLittle(t *testing.T) {
	t.Parallel()
	k := newTalk(t, func(*fakeAgent, string) bool { return true })
	for range 100 {
		k.second(false)
	}
	if len(k.f.asked) > 0 {
		t.Fatalf("asked %q", k.f.asked)
	}
	for n := range 10_000 {
		k.second(n%2 == 0)
	}
	if len(k.f.asked) != maxUnread {
		t.Errorf("asked %d times", len(k.f.asked))
	}
}

// Addresses come late: who has told all is asked again, and what it tells last counts.
func TestAgentIsAskedAgain(t *testing.T) {
	t.Parallel()
	k := newTalk(t, instead("guest-network-get-interfaces", `{"return": [{"name": "eth0", "hardware-address": "00:50:56:ab:cd:01"}]}`+"\n")).seconds(1)
	if told, whole := k.result(); !whole || len(told.Cards) != 1 || len(told.Cards[0].Addresses) != 0 {
		t.Fatalf("told %+v, whole %v", told, whole)
	}
	k.f.answers = nil
	if told, _ := k.seconds(3).result(); told.String() != allTold {
		t.Errorf("told %v", told)
	}
}

// What a message is does not depend on how it arrives, and nobody tells more than is kept.
func FuzzInterview(f *testing.F) {
	f.Add([]byte("\xff{\"return\": 1}\n{\"return\": {}}\n"+debian+"\n"+cards+"\n"), uint8(3))
	f.Add([]byte("{\"return\": {\"host-name\": \"x\"}}\n\xff\xff\n\n{"), uint8(1))
	f.Add([]byte("\xff"+unknown+"\n"+`{"return": [{"name": "a", "ip-addresses": [{"ip-address": "fe80::1%3", "prefix": 64}]}]}`+"\n"), uint8(64))
	f.Fuzz(func(t *testing.T, text []byte, n uint8) {
		var whole, cut messageSplitter
		want := whole.split(text)
		var got []message
		for rest := text; len(rest) > 0; {
			k := min(len(rest), int(n)+1)
			got, rest = append(got, cut.split(rest[:k])...), rest[k:]
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v, in parts %v", want, got)
		}
		k := newTalk(t, func(*fakeAgent, string) bool { return true })
		k.poll(true)
		k.receive(text)
		if told, _ := k.result(); told != nil {
			t.Errorf("it guessed the number: %v", told)
		}
		for k.at = 1; k.at < len(questions); k.at++ { // as if it had
			for _, m := range want {
				k.isAnswer(m)
			}
		}
		if len(k.told.Cards) > maxCards || len(k.told.String()) > (maxCards*maxAddresses+3)*(2*fault.MaxLine) {
			t.Errorf("told %v", k.told)
		}
	})
}
