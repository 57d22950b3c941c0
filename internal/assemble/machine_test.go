package assemble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/doctor"
)

// machine is an assembler with a state directory of its own and nobody at the terminal.
type machine struct {
	*Assembler
	t    *testing.T
	vars map[string]string
	said strings.Builder // warnings
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	r := &machine{t: t, vars: map[string]string{}}
	r.Assembler = &Assembler{
		Prompts: Prompts{
			Terminal: func() (Terminal, error) { return nil, errors.New("no terminal") },
			Command:  func(more ...string) string { return "decamp ls esxi://root@esx1 " + strings.Join(more, " ") },
			Warn:     func(format string, args ...any) { fmt.Fprintf(&r.said, "Warning: "+format+"\n", args...) },
			Notify:   func(string, ...any) {}, Found: func([]doctor.Finding) {}, Log: slog.New(slog.DiscardHandler),
		},
		Version: "test", Env: func(name string) string { return r.vars[name] }, State: t.TempDir(),
	}
	return r
}

// person answers each question with the same words, and remembers the questions.
type person struct{ answers, asked string }

func (p *person) Ask(_ context.Context, prompt string) (string, error) {
	p.asked += prompt
	return p.answers, nil
}

func (p *person) AskSecret(ctx context.Context, prompt string) (string, error) {
	return p.Ask(ctx, prompt)
}
func (p *person) Close() error { return nil }

// asks has a person at the terminal.
func (r *machine) asks(p *person) { r.Terminal = func() (Terminal, error) { return p, nil } }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustContain(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in:\n%s", w, text)
		}
	}
}
