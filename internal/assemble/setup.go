package assemble

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
)

// Setup is a first configuration: a source, a target and a plan file.
type Setup struct {
	Source  config.Source // source; without a URL the user is asked
	To      string        // value of --to; if empty the user is asked
	Plan    string        // path of the plan file
	Replace bool          // existing files and entries are replaced without a question
}

// maxAnswers is the number of wrong answers to a question, after which it is an error.
const maxAnswers = 3

// AskSetup asks for the missing fields of s, and whether the plan file may be replaced. It connects to
// nothing. Without a terminal a missing field and an existing plan file are errors.
func (p *Prompts) AskSetup(ctx context.Context, s *Setup) (err error) {
	if s.Source.URL, err = p.askFor(ctx, s.Source.URL, "--source", "Source, such as esxi://root@esx1.example.com: ", func(text string) error {
		_, err := esx.ParseURL(text)
		return err
	}); err != nil {
		return err
	}
	if s.To, err = p.askFor(ctx, s.To, "--to", "Target, such as dir:/srv/vm: ", func(text string) error {
		_, err := DestinationOf(text, "")
		return err
	}); err != nil {
		return err
	}
	to, err := DestinationOf(s.To, "")
	if err != nil {
		return err
	}
	s.To = string(to) // a relative folder is absolute
	if _, err := os.Lstat(s.Plan); errors.Is(err, fs.ErrNotExist) || s.Replace {
		return nil
	}
	return p.confirmReplace(ctx, s.Plan+" exists", "set another file with --plan, or replace it with --replace")
}

// askFor returns text if it is not empty, otherwise the answer of the user. check returns why a text is
// wrong; the user may answer again.
func (p *Prompts) askFor(ctx context.Context, text, flag, question string, check func(string) error) (string, error) {
	if text != "" {
		return text, check(text)
	}
	t, err := p.Terminal()
	if err != nil {
		return "", fault.New(fault.Invalid, "%s is missing, and decamp has no terminal for a question", flag).WithHint("run: decamp init --source URL --to TARGET")
	}
	defer t.Close()
	for n := 1; ; n++ {
		answer, err := t.Ask(ctx, question)
		if err != nil {
			return "", err
		}
		wrong := check(strings.TrimSpace(answer))
		if wrong == nil || n == maxAnswers {
			return strings.TrimSpace(answer), wrong
		}
		question = fmt.Sprintf("%v: %s\n%s", wrong, fault.HintOf(wrong), question[strings.LastIndexByte(question, '\n')+1:])
	}
}

// confirmReplace asks whether something that exists may be replaced. A nil result is a yes.
func (p *Prompts) confirmReplace(ctx context.Context, what, remedy string) error {
	refused := fault.New(fault.Conflict, "%s", what).WithHint("%s", remedy)
	t, err := p.Terminal()
	if err != nil {
		return refused
	}
	defer t.Close()
	answer, err := t.Ask(ctx, what+". Replace it? Type yes to continue: ")
	if err == nil && strings.TrimSpace(answer) != "yes" {
		err = refused
	}
	return err
}

// WriteSetup writes the source and the target to the user's config file, and returns their names. An entry
// with the same value is used; another entry of the name is replaced only after a confirmation.
func (p *Prompts) WriteSetup(ctx context.Context, e config.Editor, files config.Paths, s Setup) (source, target string, err error) {
	known, err := config.Load(files, e.Flags)
	if err != nil {
		return "", "", err
	}
	source, target = known.NameSource(s.Source.URL), known.NameTarget(s.To)
	if old, exists := known.Sources[source]; !exists || old.URL != s.Source.URL {
		if exists && !s.Replace {
			if err := p.confirmReplace(ctx, fmt.Sprintf("source %s exists (%s)", source, old.Origin), "replace it with --replace"); err != nil {
				return "", "", err
			}
		}
		if err := e.SetSource(source, s.Source); err != nil {
			return "", "", err
		}
	}
	if old, exists := known.Targets[target]; !exists || old.To != s.To {
		if exists && !s.Replace {
			if err := p.confirmReplace(ctx, fmt.Sprintf("target %s exists (%s)", target, old.Origin), "replace it with --replace"); err != nil {
				return "", "", err
			}
		}
		if err := e.SetTarget(target, s.To); err != nil {
			return "", "", err
		}
	}
	return source, target, nil
}
