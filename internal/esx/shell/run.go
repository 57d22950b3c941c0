package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/decamp/decamp/internal/fault"
)

// maxOutput bounds what a command may answer, in bytes of each output.
const maxOutput = 1 << 20

// Output is what a command left.
type Output struct {
	Stdout []byte
	Stderr []byte
	Status int // as the shell has it: 127 is not found, 128 + n killed by signal n
}

// Err is nil if the status is 0, else it says what the command said.
func (o Output) Err() error {
	if o.Status == 0 {
		return nil
	}
	said := strings.TrimSpace(string(o.Stderr))
	if said == "" {
		said = strings.TrimSpace(string(o.Stdout))
	}
	return fmt.Errorf("status %d: %s", o.Status, lastLines(said))
}

// lastLines is the end of a text that may be long, on one line.
func lastLines(s string) string {
	const most = 400
	if len(s) > most {
		s = "…" + strings.ToValidUTF8(s[len(s)-most:], "")
	}
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// Run runs one command, whose words reach it as they are, whatever is in them. A command
// that ends with another status than 0 is no error: see Output.Err. If ctx ends first, the
// command is hung up. One that broke off with the connection is fault.Transient.
//
// Words that begin with - are options to most commands; paths should be absolute.
func (s *Shell) Run(ctx context.Context, argv ...string) (Output, error) {
	line, err := quoteWords(argv)
	if err != nil {
		return Output{}, err
	}
	out, err := s.runScript(ctx, line)
	if err != nil {
		return out, fmt.Errorf("run %s on %s: %w", argv[0], s.cfg.Addr, err)
	}
	return out, nil
}

// quoteWords writes words so that a shell reads them back as they are.
func quoteWords(argv []string) (string, error) {
	if len(argv) == 0 {
		return "", fault.New(fault.Internal, "no command to run")
	}
	words := make([]string, len(argv))
	for i, a := range argv {
		if strings.ContainsRune(a, 0) {
			return "", fault.New(fault.Invalid, "%q has a zero byte: no command can be given that", a)
		}
		words[i] = fault.Quote(a)
	}
	return strings.Join(words, " "), nil
}

// runScript runs a text in the host's shell. A connection that turns out to be broken before
// anything ran is replaced once.
func (s *Shell) runScript(ctx context.Context, text string) (Output, error) {
	var out limitedBuffer
	o, err := s.runScriptTo(ctx, text, &out)
	o.Stdout = out.Bytes()
	return o, err
}

// runScriptTo is script for a text whose output goes to w while it runs.
func (s *Shell) runScriptTo(ctx context.Context, text string, w io.Writer) (Output, error) {
	if err := s.sessions.Acquire(ctx, 1); err != nil {
		return Output{}, err
	}
	defer s.sessions.Release(1)
	for {
		l, fresh, err := s.conn.ensureConnected(ctx)
		if err != nil {
			return Output{}, err
		}
		session, err := s.conn.openSession(ctx, l)
		switch {
		case err == nil:
			return s.runInSession(ctx, session, text, w)
		case ctx.Err() != nil:
			return Output{}, ctx.Err()
		case fresh:
			return Output{}, sessionError(err)
		}
		s.conn.dropLink(l)
	}
}

// sessionError is a login that was taken and then is good for nothing.
func sessionError(err error) error {
	var refused *ssh.OpenChannelError
	if errors.As(err, &refused) {
		return fault.New(fault.Denied, "%w", err).WithHint("the host opens no session: it may be in lockdown mode, or have as many SSH sessions as it takes (SshSessionLimit)")
	}
	return fault.Wrap(fault.Transient, err)
}

// runInSession starts the text in a session and waits for its end.
func (s *Shell) runInSession(ctx context.Context, session *ssh.Session, text string, w io.Writer) (Output, error) {
	defer session.Close()
	var errs limitedBuffer
	session.Stdout, session.Stderr = w, &errs
	if err := session.Start(text); err != nil {
		return Output{}, fault.Wrap(fault.Transient, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = session.Close() }) // Wait tells
	err := session.Wait()
	if !stop() {
		return Output{}, ctx.Err()
	}
	o := Output{Stderr: errs.Bytes()}
	var exit *ssh.ExitError
	switch {
	case errors.As(err, &exit):
		o.Status = exit.ExitStatus()
	case errors.Is(err, errTooLong):
		return o, fault.Wrap(fault.Unsupported, err)
	case err != nil:
		return o, fault.New(fault.Transient, "the connection ended before the command did: %w", err)
	}
	return o, nil
}

// limitedBuffer takes maxOutput bytes and fails then.
type limitedBuffer struct{ bytes.Buffer }

var (
	errTooLong           = fmt.Errorf("it answers with more than %d bytes", maxOutput)
	_          io.Writer = (*limitedBuffer)(nil)
)

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutput {
		return 0, errTooLong
	}
	return b.Buffer.Write(p)
}

// runShell runs a script with words for $1 and on; a status other than 0 is an error.
func (s *Shell) runShell(ctx context.Context, script string, words ...string) (Output, error) {
	out, err := s.Run(ctx, append([]string{"sh", "-c", script, "sh"}, words...)...)
	if err == nil {
		err = out.Err()
		if err != nil {
			err = fault.New(fault.Conflict, "on %s: %w", s.cfg.Addr, err).WithHint("see that the host's RAM disk %s has room: vdf -h", path.Dir(s.cfg.Jobs))
		}
	}
	return out, err
}
