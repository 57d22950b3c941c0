package shell

import (
	"bytes"
	"strconv"

	"github.com/decamp/decamp/internal/fault"
)

// kind is the state of a job.
type kind int

const (
	none    kind = iota // no job has this name
	begun               // the folder exists, without pid
	running             // the process exists
	dead                // the process is gone and left no status
	exited              // the command ended with a status
)

// state is the parsed output of statusScript.
type state struct {
	kind    kind   // state of the job
	status  int    // exit status; only for exited
	command string // command in the syntax of the shell; "" if not written yet
	log     []byte // end of the log
}

// stateWords maps the words of statusScript. exited is printed as "exit" and a number.
var stateWords = map[string]kind{"none": none, "begun": begun, "running": running, "dead": dead}

// maxStatus is the largest exit status of a shell.
const maxStatus = 255

// parseState parses the output of statusScript. A truncated output is fault.Transient,
// because the job's folder may be removed during the read. Other invalid output is
// fault.Corrupt.
func parseState(text []byte) (state, error) {
	word, rest, _ := bytes.Cut(text, []byte("\n"))
	var st state
	if status, ok := bytes.CutPrefix(word, []byte("exit ")); ok {
		if len(status) == 0 { // the folder was removed during the read: a retry shows it
			return st, fault.New(fault.Transient, "a job's exit status is missing")
		}
		n, err := strconv.Atoi(string(status))
		if err != nil || n < 0 || n > maxStatus {
			return st, fault.New(fault.Corrupt, "a job's exit status is %q", status)
		}
		st.kind, st.status = exited, n
	} else if k, known := stateWords[string(word)]; known {
		st.kind = k
	} else {
		return st, fault.New(fault.Corrupt, "a job's state is %.40q", word)
	}
	if st.kind == none {
		return st, nil
	}
	// The second line is the length of the command, whose text may contain line ends.
	word, rest, _ = bytes.Cut(rest, []byte("\n"))
	n, err := strconv.Atoi(string(bytes.TrimSpace(word)))
	if err != nil || n < 0 {
		return st, fault.New(fault.Corrupt, "a job's command has %.40q bytes", word)
	}
	if n > len(rest) { // the folder was removed during the read: a retry shows it
		return st, fault.New(fault.Transient, "a job's command has %d bytes of %d", len(rest), n)
	}
	st.command, st.log = string(bytes.TrimSuffix(rest[:n], []byte("\n"))), rest[n:]
	return st, nil
}
