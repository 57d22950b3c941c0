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

// maxOutput limits each of the outputs of a command, in bytes.
const maxOutput = 1 << 20

// Output is the result of a command.
type Output struct {
	Stdout []byte // standard output
	Stderr []byte // standard error
	Status int    // exit status of the shell: 127 is not found, 128 + n is killed by signal n
}

// Err returns nil if the status is 0, else an error with the end of the output.
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

// lastLines returns the end of s on one line, at most 400 bytes.
func lastLines(s string) string {
	const most = 400
	if len(s) > most {
		s = "…" + strings.ToValidUTF8(s[len(s)-most:], "")
	}
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// Run runs one command. The arguments are quoted, so that the command receives them
// unchanged. A nonzero status is no error; see Output.Err. If ctx ends first, the
// session is closed, which hangs up the command. A lost connection is fault.Transient.
//
// Most commands parse arguments that begin with - as options. Paths should be absolute.
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

// quoteWords returns a command line that a shell splits into exactly these words. A
// zero byte is fault.Invalid.
func quoteWords(argv []string) (string, error) {
	if len(argv) == 0 {
		return "", fault.New(fault.Internal, "no command to run")
	}
	words := make([]string, len(argv))
	for i, a := range argv {
		if strings.ContainsRune(a, 0) {
			return "", fault.New(fault.Invalid, "%q contains a zero byte, which a command cannot contain", a)
		}
		words[i] = fault.Quote(a)
	}
	return strings.Join(words, " "), nil
}

// runScript runs text in the host's shell and collects its output.
func (s *Shell) runScript(ctx context.Context, text string) (Output, error) {
	var out limitedBuffer
	o, err := s.runScriptTo(ctx, text, &out)
	o.Stdout = out.Bytes()
	return o, err
}

// runScriptTo runs text in the host's shell and writes its standard output to w while
// it runs. If an old connection cannot open a session, it reconnects once. It waits for
// one of maxSessions slots.
func (s *Shell) runScriptTo(ctx context.Context, text string, w io.Writer) (Output, error) {
	if err := s.sessions.Acquire(ctx, 1); err != nil {
		return Output{}, err
	}
	defer s.sessions.Release(1)
	for {
		// An old connection may be dead without having been noticed.
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

// sessionError converts the error of a new connection that opens no session.
func sessionError(err error) error {
	var refused *ssh.OpenChannelError
	if errors.As(err, &refused) {
		return fault.New(fault.Denied, "%w", err).WithHint("the host opens no session: it may be in lockdown mode, or have its maximum number of SSH sessions (SshSessionLimit)")
	}
	return fault.Wrap(fault.Transient, err)
}

// runInSession starts text in a session and waits for its end. It closes the session.
func (s *Shell) runInSession(ctx context.Context, session *ssh.Session, text string, w io.Writer) (Output, error) {
	defer session.Close()
	var errs limitedBuffer
	session.Stdout, session.Stderr = w, &errs
	if err := session.Start(text); err != nil {
		return Output{}, fault.Wrap(fault.Transient, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = session.Close() }) // Wait then returns an error
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
		return o, fault.New(fault.Transient, "the connection ended before the command: %w", err)
	}
	return o, nil
}

// limitedBuffer fails after maxOutput bytes.
type limitedBuffer struct{ bytes.Buffer }

var (
	// errTooLong is the error of a limitedBuffer that is full.
	errTooLong           = fmt.Errorf("its answer has more than %d bytes", maxOutput)
	_          io.Writer = (*limitedBuffer)(nil)
)

// Write is part of io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutput {
		return 0, errTooLong
	}
	return b.Buffer.Write(p)
}

// runShell runs a script with words as $1 and following. A nonzero status is
// fault.Conflict.
func (s *Shell) runShell(ctx context.Context, script string, words ...string) (Output, error) {
	out, err := s.Run(ctx, append([]string{"sh", "-c", script, "sh"}, words...)...)
	if err == nil {
		err = out.Err()
		if err != nil {
			err = fault.New(fault.Conflict, "on %s: %w", s.cfg.Addr, err).WithHint("check the free space of the host's RAM disk %s: vdf -h", path.Dir(s.cfg.Jobs))
		}
	}
	return out, err
}
