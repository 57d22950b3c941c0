package shell

import (
	"path"
	"slices"
	"strings"
)

// expandPattern returns the fields of a word. If the word contains an unquoted *, ? or [ and files
// match, it returns their names; otherwise the pattern stays as it is (POSIX shell, section 2.13.3).
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

// globPattern returns the word in the syntax of path.Match, with quoted text escaped. ok is false if
// the word contains no pattern, or an expansion that is not quoted: those are not emulated.
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

// escapePattern returns a pattern that matches only text.
func escapePattern(text string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(text)
}

// matchFiles returns the sorted names of the files that match a pattern, relative to the working
// directory if the pattern is. Names with a leading dot match only a pattern with a leading dot.
func (x *interp) matchFiles(pattern string) []string {
	if !path.IsAbs(pattern) {
		return x.walkMatches("", x.dir, strings.Split(pattern, "/"))
	}
	return x.walkMatches("/", "/", strings.Split(strings.TrimLeft(pattern, "/"), "/"))
}

// walkMatches returns the matches of the path elements parts below the folder at. shown is the prefix
// of their names in the result.
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
