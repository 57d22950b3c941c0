package shell

import (
	"path"
	"slices"
	"strings"
)

// names expands a word, and a pattern in it to the files there are. A pattern is a word with
// a *, ? or [ that is not quoted; one that fits nothing stays as it is.
func (x *interp) names(w word) []string {
	pattern, ok := x.pattern(w)
	if !ok || x.m.Files == nil {
		return x.expand(w)
	}
	found := x.glob(pattern)
	if len(found) == 0 {
		return x.expand(w)
	}
	return found
}

// pattern returns a word as path.Match takes it, if it has a pattern: patterns out of variables
// are beyond the lab.
func (x *interp) pattern(w word) (string, bool) {
	var b strings.Builder
	is := false
	for _, p := range w {
		switch {
		case p.subst != nil || p.param && !p.quoted:
			return "", false
		case p.param:
			b.WriteString(literal(strings.Join(x.expand(word{p}), " ")))
		case p.quoted:
			b.WriteString(literal(p.text))
		default:
			is = is || strings.ContainsAny(p.text, "*?[")
			b.WriteString(p.text)
		}
	}
	return b.String(), is
}

// literal is a pattern that only text fits.
func literal(text string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(text)
}

// glob finds the files that fit, sorted. Those that begin with a dot have to be named so.
func (x *interp) glob(pattern string) []string {
	if !path.IsAbs(pattern) {
		return x.walk("", x.dir, strings.Split(pattern, "/"))
	}
	return x.walk("/", "/", strings.Split(strings.TrimLeft(pattern, "/"), "/"))
}

// walk finds what fits the parts in the folder at, whose name in the result is shown.
func (x *interp) walk(shown, at string, parts []string) (found []string) {
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
			found = append(found, x.walk(shown+name+"/", path.Join(at, name), parts[1:])...)
		}
	}
	return found
}
