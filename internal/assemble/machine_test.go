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

// testAssembler is an assembler with a temporary state directory and without a terminal.
type testAssembler struct {
	*Assembler
	t        *testing.T
	vars     map[string]string
	warnings strings.Builder
}

func newTestAssembler(t *testing.T) *testAssembler {
	t.Helper()
	r := &testAssembler{t: t, vars: map[string]string{}}
	r.Assembler = &Assembler{
		Prompts: Prompts{
			Terminal: func() (Terminal, error) { return nil, errors.New("no terminal") },
			Command:  func(more ...string) string { return "decamp ls esxi://root@esx1 " + strings.Join(more, " ") },
			Warn:     func(format string, args ...any) { fmt.Fprintf(&r.warnings, "Warning: "+format+"\n", args...) },
			Notify:   func(string, ...any) {}, Found: func([]doctor.Finding) {}, Log: slog.New(slog.DiscardHandler),
		},
		Version: "test", Env: func(name string) string { return r.vars[name] }, State: t.TempDir(),
	}
	return r
}

// fakeTerminal gives the same answer to each prompt, and records the prompts.
type fakeTerminal struct{ answer, prompts string }

func (p *fakeTerminal) Ask(_ context.Context, prompt string) (string, error) {
	p.prompts += prompt
	return p.answer, nil
}

func (p *fakeTerminal) AskSecret(ctx context.Context, prompt string) (string, error) {
	return p.Ask(ctx, prompt)
}
func (p *fakeTerminal) Close() error { return nil }

// setTerminal makes p the terminal.
func (r *testAssembler) setTerminal(p *fakeTerminal) {
	r.Terminal = func() (Terminal, error) { return p, nil }
}

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
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}
