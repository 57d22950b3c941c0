package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/decamp/decamp/internal/childenv"
	"github.com/decamp/decamp/internal/planfile"
)

const (
	commandTime = 30 * time.Second // default time limit of a command

	// commandOutputTime is how long the output of processes that a command started is read after it has
	// ended.
	commandOutputTime = 5 * time.Second

	maxOutput = 500 // bytes of a command's output in an error
)

// commandSender runs a command with the event on its standard input.
type commandSender struct {
	command []string      // program and arguments
	timeout time.Duration // time limit
}

// newCommandSender returns the sender of a command.
func newCommandSender(c planfile.NotifyCommand) *commandSender {
	s := &commandSender{timeout: time.Duration(c.Timeout)}
	if s.timeout == 0 {
		s.timeout = commandTime
	}
	for _, word := range c.Run {
		s.command = append(s.command, string(word))
	}
	return s
}

// send implements sender. The environment of the command has the common variables of package childenv
// only. After the time limit its whole process group is killed.
func (s *commandSender) send(ctx context.Context, e Event, _ []byte) error {
	input, err := json.Marshal(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	cmd.Dir, cmd.Env = "/", childenv.Of(os.Environ())
	output := &outputStart{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = commandOutputTime
	err = cmd.Run()
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay): // it succeeded, and left a process running
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("command %s exceeded its time limit of %v", s.command[0], s.timeout)
	case len(output.text) > 0:
		return fmt.Errorf("command %s: %w: %s", s.command[0], err, oneLine(string(output.text)))
	}
	return fmt.Errorf("command %s: %w", s.command[0], err)
}

// outputStart is a writer that keeps the first maxOutput bytes.
type outputStart struct{ text []byte }

// Write implements io.Writer.
func (o *outputStart) Write(p []byte) (int, error) {
	o.text = append(o.text, p[:min(len(p), maxOutput-len(o.text))]...)
	return len(p), nil
}
