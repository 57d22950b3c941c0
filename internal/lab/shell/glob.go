package shell

import (
	"path"
	"slices"
	"strings"
)

// expandPattern expands a word, and a pattern in it to the files there are. A pattern is a word with
// a *, ? or [ that is not quoted; one that fits nothing stays as it is.
func (x *interp) expandPattern(w word) []string {
	pattern, ok := x.globPattern(w)
	if !ok || x.m.Files == nil {
		return x.expandWord(w)
	}
	found := x.matchFiles(pattern)
	if len(found) == 0 {
		return x.expandWord(w)
	}
	return found
}

// globPattern returns a word as path.Match takes it, if it has a pattern: patterns out of variables
// are beyond the lab.
func (x *interp) globPattern(w word) (string, bool) {
	var b strings.Builder
	is := false
	for _, p := range w {
		switch {
		case p.subst != nil || p.param && !p.quoted:
			return "", false
		case p.param:
			b.WriteString(escapePattern(strings.Join(x.expandWord(word{p}), " ")))
		case p.quoted:
			b.WriteString(escapePattern(p.text))
		default:
			is = is || strings.ContainsAny(p.text, "*?[")
			b.WriteString(p.text)
		}
	}
	return b.String(), is
}

// escapePattern is a pattern that only text fits.
func escapePattern(text string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(text)
}

// matchFiles finds the files that fit, sorted. Those that begin with a dot have to be named so.
func (x *interp) matchFiles(pattern string) []string {
	if !path.IsAbs(pattern) {
		return x.walkMatches("", x.dir, strings.Split(pattern, "/"))
	}
	return x.walkMatches("/", "/", strings.Split(strings.TrimLeft(pattern, "/"), "/"))
}

// walkMatches finds what fits the parts in the folder at, whose name in the result is shown.
func (x *interp) walkMatches(shown, at string, parts []string) (found []string) {
	list := x.m.Files(at)
	slices.Sort(list)
	for _, name := range list {
		ok, err := path.Match(parts[0], name)
		if err != nil || !ok || strings.HasPrefix(name, ".") && !strings.HasPrefix(parts[0], ".") {
			continue
		}
		if len(parts) == 1 {
			found = append(found, shown+name)
		} else {
			found = append(found, x.walkMatches(shown+name+"/", path.Join(at, name), parts[1:])...)
		}
	}
	return found
}
