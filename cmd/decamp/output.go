package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/decamp/decamp/internal/assemble/export"
	"github.com/decamp/decamp/internal/buildinfo"
	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/terminal"
)

// output is where a command writes: results to its Writer, the standard output, and messages for users
// to the screen. Fields are set before a command runs. Methods are safe for concurrent use if the
// Writer is.
type output struct {
	io.Writer
	screen  *terminal.Screen // standard error
	json    bool             // one object per line, and nothing on the screen that the log can have
	verbose bool             // more is printed
	log     *slog.Logger     // set by program.startLog

	followUps  config.FollowUps // adds the user's server to commands in messages
	structured bool             // other programs read the log, which has the messages for users
}

// results is the standard output. It stores the first error, so that a list that a full disk has cut
// short does not end with exit code 0. Each object is one Write, so concurrent lines stay whole.
type results struct {
	w io.Writer // the standard output

	mu  sync.Mutex // guards err, and keeps writes whole
	err error      // first error
}

// Write implements io.Writer.
func (r *results) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := r.w.Write(p)
	if r.err == nil && err != nil {
		r.err = err
	}
	return n, err
}

// firstError returns the first error of a write; nil without one.
func (r *results) firstError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// stdoutFile returns the file of the standard output; nil if it is not a file.
func (o *output) stdoutFile() *os.File {
	w := o.Writer
	if r, is := w.(*results); is {
		w = r.w
	}
	f, _ := w.(*os.File)
	return f
}

// reportError prints the error and its remedy: one line each, or one JSON object. It ignores nil, and
// errors that the result contains.
func (o *output) reportError(err error) {
	_, reported := err.(export.ExitStatus) // by the program itself
	switch {
	case err == nil, reported:
	case o.json:
		if _, is := err.(inResult); is {
			return
		}
		o.printJSON(struct {
			Error problem `json:"error"`
		}{o.problemOf(err)})
	case o.structured:
		p := o.problemOf(err)
		o.log.Error(p.Message, "kind", p.Kind, "remedy", p.Remedy)
	default:
		p := o.problemOf(err)
		fmt.Fprintf(o.screen, "decamp: %s\n", fault.Printable(p.Message))
		if p.Remedy != "" {
			fmt.Fprintf(o.screen, "Remedy: %s\n", fault.Printable(p.Remedy))
		}
	}
}

// inResult marks an error that the JSON result of the command contains already.
type inResult struct{ error }

// Unwrap returns the error, so that the exit code is the same.
func (e inResult) Unwrap() error { return e.error }

// problem is an error as --json prints it.
type problem struct {
	Kind    string `json:"kind"`             // fault.Kind
	Message string `json:"message"`          // error on one line
	Remedy  string `json:"remedy,omitempty"` // remedy on one line; empty without one
}

// problemOf returns the JSON form of an error.
func (o *output) problemOf(err error) problem {
	return problem{fault.KindOf(err).String(), fault.OneLine(err.Error()), o.followUps.Complete(fault.OneLine(fault.HintOf(err)))}
}

// printJSON writes v as one line of JSON.
func (o *output) printJSON(v any) error {
	enc := json.NewEncoder(o)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// message returns a message on one line, in which commands have the flags of this one.
func (o *output) message(format string, args ...any) string {
	return fault.Printable(o.followUps.Complete(fault.OneLine(fmt.Sprintf(format, args...))))
}

// show prints an object with --json, otherwise the text for it.
func (o *output) show(object any, text string) error {
	if o.json {
		return o.printJSON(object)
	}
	_, err := io.WriteString(o, text)
	return err
}

// warn prints a problem that does not stop the command. With --json only the log has it.
func (o *output) warn(format string, args ...any) {
	text := o.message(format, args...)
	if o.json || o.structured {
		o.log.Warn(text)
		return
	}
	fmt.Fprintf(o.screen, "Warning: %s\n", text)
}

// note prints a message for users. With --json nothing prints it. If other programs read the log, it has the
// message.
func (o *output) note(format string, args ...any) {
	text := o.message(format, args...)
	switch {
	case o.structured:
		o.log.Info(text)
	case !o.json:
		fmt.Fprintln(o.screen, text)
	}
}

// joinClose joins the error of close to err. Use it with defer, which would drop the error.
func joinClose(err *error, close func() error) {
	if also := close(); also != nil {
		*err = errors.Join(*err, also)
	}
}

// printVersion prints the version.
func (o *output) printVersion() error {
	if o.json {
		return o.printJSON(buildinfo.Current())
	}
	_, err := io.WriteString(o, buildinfo.Current().Line("decamp"))
	return err
}
