package virtv2v

import (
	"regexp"
	"slices"
	"strings"
)

// said collects the relevant lines of virt-v2v's output. The text is untrusted: the guest's kernel and
// programs write to it as well.
type said struct {
	errors   []string // errors of virt-v2v itself
	others   []string // errors of the programs that it runs: libguestfs, supermin, QEMU
	warnings []string
	last     string // line that has anything
	open     *string
}

const (
	maxSaid    = 32   // messages of a kind
	maxMessage = 1000 // bytes
)

var (
	doing   = regexp.MustCompile(`^\[ *\d+\.\d\] (.+)$`)
	message = regexp.MustCompile(`^virt-v2v(?:-in-place)?: (error|warning): (.*)$`)

	// trouble matches errors of those programs.
	trouble = regexp.MustCompile(`^(?:libguestfs: error: |supermin: failed|supermin: (?:error|exception): |qemu-system-\S+: |qemu-nbd: |nbdkit: \S+ ?error: |Fatal error: )`)

	// inside is what ends a message that goes on over several lines.
	inside = regexp.MustCompile(`^(?:libguestfs: |supermin: |rm -rf |If reporting bugs|guestfsd: |\[)`)
)

// hear handles a line, and returns the current activity if the line contains it.
func (s *said) hear(line string) string {
	line = strings.TrimRight(strings.Map(printable, line), " ")
	if strings.TrimSpace(line) == "" || inside.MatchString(line) {
		s.open = nil
	}
	switch m := message.FindStringSubmatch(line); {
	case line == "":
	case m != nil && m[1] == "error":
		s.open = add(&s.errors, m[2])
	case m != nil:
		s.open = add(&s.warnings, m[2])
	case doing.MatchString(line):
		return doing.FindStringSubmatch(line)[1]
	case trouble.MatchString(line):
		s.open = nil
		add(&s.others, line)
	case s.open != nil && len(*s.open)+len(line) < maxMessage:
		*s.open += " " + strings.TrimSpace(line)
	}
	if line != "" {
		s.last = line[:min(len(line), maxMessage)]
	}
	return ""
}

// add keeps the last messages of a kind.
func add(to *[]string, text string) *string {
	if len(*to) == maxSaid {
		*to = slices.Delete(*to, 0, 1)
	}
	*to = append(*to, text[:min(len(text), maxMessage)])
	return &(*to)[len(*to)-1]
}

// why returns the last message that explains a failure. virt-v2v ends reports on errors of other
// programs with a reference to their messages.
func (s *said) why() string {
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

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}
