package shell

import (
	"bytes"
	"strconv"

	"github.com/decamp/decamp/internal/fault"
)

// kind is how a job is.
type kind int

const (
	none    kind = iota // there is no such job
	begun               // it has a folder and no pid yet
	running             // its process lives
	dead                // its process is gone and left no status
	exited              // it ended
)

// state is what statusScript says of a job.
type state struct {
	kind    kind
	status  int // of one that exited
	command string
	log     []byte // its end
}

var stateWords = map[string]kind{"none": none, "begun": begun, "running": running, "dead": dead}

// maxStatus is the largest exit status a shell tells.
const maxStatus = 255

// parseState reads what statusScript writes.
func parseState(text []byte) (state, error) {
	word, rest, _ := bytes.Cut(text, []byte("\n"))
	var st state
	if status, ok := bytes.CutPrefix(word, []byte("exit ")); ok {
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
	word, rest, _ = bytes.Cut(rest, []byte("\n"))
	n, err := strconv.Atoi(string(bytes.TrimSpace(word)))
	if err != nil || n < 0 {
		return st, fault.New(fault.Corrupt, "a job's command has %.40q bytes", word)
	}
	if n > len(rest) { // its folder went while it was read: another look tells
		return st, fault.New(fault.Transient, "a job's command has %d bytes of %d", len(rest), n)
	}
	st.command, st.log = string(bytes.TrimSuffix(rest[:n], []byte("\n"))), rest[n:]
	return st, nil
}
