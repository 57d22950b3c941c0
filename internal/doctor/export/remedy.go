package export

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// remedyFor returns the commands that correct the configuration of an export. They set
// all rules that ESXi needs, so that the remedies of several checks do not conflict.
// more lists clients to add.
func (s *Server) remedyFor(e Export, more ...Client) string {
	switch {
	case s.Name == ganeshaName:
		return s.editBlock(e, more)
	case path.Base(e.At.File) == "zfs.exports":
		return zfsCommand(e, more)
	case !s.isWritten(e):
		return s.exportfsCommand(e, more)
	}
	return s.editLine(e, more)
}

// isWritten reports whether an export comes from a configuration file.
func (s *Server) isWritten(e Export) bool {
	for _, w := range s.Written {
		if w.At == e.At {
			return true
		}
	}
	return false
}

// editBlock returns the values to set in ganesha.conf, as text: its format is too
// flexible for sed.
func (s *Server) editBlock(e Export, more []Client) string {
	add := ""
	for _, c := range more {
		add += fmt.Sprintf(" CLIENT { Clients = %s; Access_Type = RW; Squash = No_Root_Squash; }", c)
	}
	if add == "" {
		add = " Access_Type = RW; Squash = No_Root_Squash; Protocols = 3;"
	}
	return fmt.Sprintf("# at %s, for %s, add:%s\n%s", e.At, e.Path, add, s.reload)
}

// exportfsCommand returns the commands for an export that is in no file. They are lost
// at the next reload.
func (s *Server) exportfsCommand(e Export, more []Client) string {
	if len(more) == 0 {
		more = []Client{e.Client}
	}
	var lines []string
	for _, c := range more {
		lines = append(lines, fmt.Sprintf("exportfs -o %s %s", e.optionsWith(e.Rules.corrected()), fault.Quote(string(c)+":"+e.Path)))
	}
	return strings.Join(lines, "\n")
}

// zfsCommand returns the command for exports that ZFS generates from its property
// sharenfs. An edit of the file would be overwritten.
func zfsCommand(e Export, more []Client) string {
	rules := e.Rules.corrected()
	// sharenfs lists the clients as values of rw.
	words := strings.TrimPrefix(rules.toOptions(), "rw,")
	for _, c := range append([]Client{e.Client}, more...) {
		if c == Everybody {
			words += ",rw"
			continue
		}
		words += ",rw=@" + string(c)
	}
	return fmt.Sprintf(`zfs set sharenfs='%s' "$(zfs list -Ho name %s)"`, words, fault.Quote(e.Path))
}

// editLine returns a sed command that replaces the line of e, or the new text if sed
// cannot express it.
func (s *Server) editLine(e Export, more []Client) string {
	line := s.newLine(e, more)
	lines := fmt.Sprint(e.At.First)
	if e.At.Last > e.At.First {
		lines = fmt.Sprintf("%d,%d", e.At.First, e.At.Last)
	}
	// The line would need quoting for both the shell and sed.
	if strings.ContainsAny(line, `'\`) {
		return fmt.Sprintf("# replace line %s of %s by: %s\n%s", lines, e.At.File, line, s.reload)
	}
	return fmt.Sprintf("sed -i '%sc\\%s' %s && %s", lines, line, e.At.File, s.reload)
}

// newLine returns the corrected line of e, with all of its clients.
func (s *Server) newLine(e Export, more []Client) string {
	var b strings.Builder
	b.WriteString(quotePath(e.Path))
	for _, w := range s.Written {
		if w.At != e.At {
			continue
		}
		rules := w.Rules
		if slices.Contains(s.relevant, w) { // others are not opened any further
			rules = rules.corrected()
		}
		fmt.Fprintf(&b, " %s(%s)", w.Client, w.optionsWith(rules))
	}
	for _, c := range more {
		fmt.Fprintf(&b, " %s(%s)", c, e.optionsWith(e.Rules.corrected()))
	}
	return b.String()
}

// quotePath returns a path in the format of exports(5).
func quotePath(path string) string {
	if strings.ContainsAny(path, " \t#") {
		return `"` + path + `"`
	}
	return path
}
