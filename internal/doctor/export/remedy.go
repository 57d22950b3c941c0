package export

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// editing is how a server's files are put right: with all that ESXi needs at once, so that one
// remedy does not undo another.
func (s *Server) editing(e Export, more ...Client) string {
	switch {
	case s.Name == ganeshaName:
		return s.editBlock(e, more)
	case path.Base(e.At.File) == "zfs.exports":
		return sharing(e, more)
	case !s.isWritten(e):
		return s.exporting(e, more)
	}
	return s.editLine(e, more)
}

func (s *Server) isWritten(e Export) bool {
	for _, w := range s.Written {
		if w.At == e.At {
			return true
		}
	}
	return false
}

// editBlock names the values: blocks are too free in form for sed.
func (s *Server) editBlock(e Export, more []Client) string {
	add := ""
	for _, c := range more {
		add += fmt.Sprintf(" CLIENT { Clients = %s; Access_Type = RW; Squash = No_Root_Squash; }", c)
	}
	if add == "" {
		add = " Access_Type = RW; Squash = No_Root_Squash; Protocols = 3;"
	}
	return fmt.Sprintf("at %s, for %s, say:%s\n%s", e.At, e.Path, add, s.reload)
}

// exporting returns the command that changes the exports without a file.
func (s *Server) exporting(e Export, more []Client) string {
	if len(more) == 0 {
		more = []Client{e.Client}
	}
	var lines []string
	for _, c := range more {
		lines = append(lines, fmt.Sprintf("exportfs -o %s %s", e.options(e.Rules.fit()), fault.Quote(string(c)+":"+e.Path)))
	}
	return strings.Join(lines, "\n")
}

// sharing returns the command for exports that ZFS writes from its property sharenfs, and would
// overwrite.
func sharing(e Export, more []Client) string {
	rules := e.Rules.fit()
	words := strings.TrimPrefix(rules.options(), "rw,")
	for _, c := range append([]Client{e.Client}, more...) {
		if c == Everybody {
			words += ",rw"
			continue
		}
		words += ",rw=@" + string(c)
	}
	return fmt.Sprintf(`zfs set sharenfs='%s' "$(zfs list -Ho name %s)"`, words, fault.Quote(e.Path))
}

// editLine returns the new text of the line of e.
func (s *Server) editLine(e Export, more []Client) string {
	line := s.line(e, more)
	lines := fmt.Sprint(e.At.First)
	if e.At.Last > e.At.First {
		lines = fmt.Sprintf("%d,%d", e.At.First, e.At.Last)
	}
	if strings.ContainsAny(line, `'\`) {
		return fmt.Sprintf("write in place of line %s of %s: %s\n%s", lines, e.At.File, line, s.reload)
	}
	return fmt.Sprintf("sed -i '%sc\\%s' %s && %s", lines, line, e.At.File, s.reload)
}

// line is e's line as it should be.
func (s *Server) line(e Export, more []Client) string {
	var b strings.Builder
	b.WriteString(escaped(e.Path))
	for _, w := range s.Written {
		if w.At != e.At {
			continue
		}
		rules := w.Rules
		if slices.Contains(s.concern, w) { // others are not opened any further
			rules = rules.fit()
		}
		fmt.Fprintf(&b, " %s(%s)", w.Client, w.options(rules))
	}
	for _, c := range more {
		fmt.Fprintf(&b, " %s(%s)", c, e.options(e.Rules.fit()))
	}
	return b.String()
}

// escaped is a path as exports(5) takes it.
func escaped(path string) string {
	if strings.ContainsAny(path, " \t#") {
		return `"` + path + `"`
	}
	return path
}
