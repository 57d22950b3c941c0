package virtv2v

import (
	"regexp"
	"slices"
	"strings"
)

// messages collects the relevant lines of virt-v2v's output. The text is untrusted, because the guest's
// kernel and programs write to the same output.
type messages struct {
	errors   []string // errors of virt-v2v itself
	others   []string // errors of programs that it runs: libguestfs, supermin, QEMU
	warnings []string // warnings of virt-v2v itself
	last     string   // last line that is not empty
	current  *string  // message that may continue in the next line; nil if none
}

const (
	maxMessages = 32   // messages of each kind
	maxMessage  = 1000 // bytes of a message
)

var (
	// matches the start of a step: "[ 12.3] Opening the source"
	activityLine = regexp.MustCompile(`^\[ *\d+\.\d\] (.+)$`)
	// matches an error or warning of virt-v2v
	messageLine = regexp.MustCompile(`^virt-v2v(?:-in-place)?: (error|warning): (.*)$`)

	// programError matches errors of the programs that virt-v2v runs.
	programError = regexp.MustCompile(`^(?:libguestfs: error: |supermin: failed|supermin: (?:error|exception): |qemu-system-\S+: |qemu-nbd: |nbdkit: \S+ ?error: |Fatal error: )`)

	// messageEnd matches lines that end a message of several lines.
	messageEnd = regexp.MustCompile(`^(?:libguestfs: |supermin: |rm -rf |If reporting bugs|guestfsd: |\[)`)
)

// addLine evaluates a line. It returns the current activity if the line contains it.
func (s *messages) addLine(line string) string {
	line = strings.TrimRight(strings.Map(replaceControl, line), " ")
	if strings.TrimSpace(line) == "" || messageEnd.MatchString(line) {
		s.current = nil
	}
	switch m := messageLine.FindStringSubmatch(line); {
	case line == "":
	case m != nil && m[1] == "error":
		s.current = appendMessage(&s.errors, m[2])
	case m != nil:
		s.current = appendMessage(&s.warnings, m[2])
	case activityLine.MatchString(line):
		return activityLine.FindStringSubmatch(line)[1]
	case programError.MatchString(line):
		s.current = nil
		appendMessage(&s.others, line)
	case s.current != nil && len(*s.current)+len(line) < maxMessage:
		*s.current += " " + strings.TrimSpace(line)
	}
	if line != "" {
		s.last = line[:min(len(line), maxMessage)]
	}
	return ""
}

// appendMessage appends a message and removes the oldest one if there are maxMessages. It returns a
// pointer to the new one.
func appendMessage(to *[]string, text string) *string {
	if len(*to) == maxMessages {
		*to = slices.Delete(*to, 0, 1)
	}
	*to = append(*to, text[:min(len(text), maxMessage)])
	return &(*to)[len(*to)-1]
}

// lastError returns the last message that explains a failure. virt-v2v ends reports about errors of
// other programs with a reference to their messages.
func (s *messages) lastError() string {
	if len(s.errors) == 0 {
		if len(s.others) > 0 {
			return s.others[len(s.others)-1]
		}
		return s.last
	}
	text := s.errors[len(s.errors)-1]
	if strings.Contains(text, "see debug messages above") && len(s.others) > 0 {
		text += " (" + s.others[len(s.others)-1] + ")"
	}
	return text
}

// replaceControl replaces control characters, which could change the terminal, by spaces.
func replaceControl(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}
