package export

import (
	"fmt"
	"strings"
)

// An Export is one folder that is open to one client.
type Export struct {
	Path   string
	Client Client
	Rules  Rules
	Others string // options that are not rules, as they are written
	At     Place
}

// String is as exportfs takes it.
func (e Export) String() string { return string(e.Client) + ":" + e.Path }

// options are those of exports(5) for e with other rules.
func (e Export) options(r Rules) string {
	if e.Others == "" {
		return r.options()
	}
	return r.options() + "," + e.Others
}

// Place is where something is written.
type Place struct {
	File        string // path on this machine
	First, Last int    // lines, from 1; 0 where a file has none
}

// String is file:line.
func (p Place) String() string {
	if p.First == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.First)
}

// A Problem is a line of a file with a misleading meaning, or without any.
type Problem struct {
	At     Place
	Seen   string
	Remedy string
}

// A dialect is one of the texts with a folder and its clients on each line.
type dialect struct {
	defaults Rules
	strict   bool // users write the file: unusual lines are Problems
}

var (
	written = dialect{defaults, true}        // exports(5)
	etab    = dialect{defaults, false}       // /var/lib/nfs/etab, and exportfs -v
	held    = dialect{kernelDefaults, false} // /proc/fs/nfsd/exports
)

// ParseExports reads a file in the format of exports(5). What cannot be made sense of is a
// Problem, and the rest is read.
func ParseExports(text, file string) ([]Export, []Problem) { return parse(text, file, written) }

// ParseTable parses /var/lib/nfs/etab or the output of exportfs -v, in which long paths have a separate
// line.
func ParseTable(text, file string) []Export {
	exports, _ := parse(strings.ReplaceAll(text, "\n\t", "\\\n\t"), file, etab)
	return exports
}

// ParseKernel reads /proc/fs/nfsd/exports: what the kernel was asked for lately.
func ParseKernel(text, file string) []Export {
	exports, _ := parse(text, file, held)
	return exports
}

func parse(text, file string, d dialect) ([]Export, []Problem) {
	p := parser{dialect: d}
	for _, l := range logicalLines(text, file) {
		p.line(l)
	}
	return p.exports, p.problems
}

type parser struct {
	dialect
	exports  []Export
	problems []Problem
}

func (p *parser) problem(at Place, remedy, format string, args ...any) {
	if p.strict {
		p.problems = append(p.problems, Problem{at, fmt.Sprintf(format, args...), remedy})
	}
}

// line reads a folder and its clients.
func (p *parser) line(l line) {
	words, whole := l.words()
	if !whole {
		p.problem(l.at, "close the quotes of the path", "a quote is not closed")
	}
	if len(words) == 0 {
		return
	}
	folder := words[0]
	if !strings.HasPrefix(folder, "/") {
		p.problem(l.at, "begin the line with the folder, from / on", "%q is not a folder's whole path: the line exports nothing", folder)
		return
	}
	d, before := Export{Path: folder, Rules: p.defaults, At: l.at}, len(p.exports)
	for i, w := range words[1:] {
		if options, ok := strings.CutPrefix(w, "-"); ok {
			d = p.options(d, options)
			continue
		}
		if strings.HasPrefix(w, "(") && i > 0 && !strings.ContainsAny(words[i], "(") {
			p.problem(l.at, fmt.Sprintf("take out the space: %s%s", words[i], w),
				"a space before %s: it opens %s to every host, and %s gets the defaults, read-only and sync", w, folder, words[i])
		}
		p.client(d, w)
	}
	if len(p.exports) == before { // without a client: all hosts
		d.Client = Everybody
		p.exports = append(p.exports, d)
	}
}

// client reads client(options). e has the folder and the line's defaults.
func (p *parser) client(e Export, word string) {
	name, options, has := strings.Cut(word, "(")
	options, closed := strings.CutSuffix(options, ")")
	if has && !closed {
		p.problem(e.At, "write the options without spaces between: (rw,async,no_root_squash)", "%q has no closing parenthesis", word)
	}
	if has {
		e = p.options(e, options)
	}
	for c := range strings.SplitSeq(name, ",") { // the kernel joins clients that an address belongs to
		if c == "" {
			c = string(Everybody)
		}
		e.Client = Client(c).canonical()
		p.exports = append(p.exports, e)
	}
}

func (p *parser) options(e Export, text string) Export {
	for o := range strings.SplitSeq(text, ",") {
		if o = strings.TrimSpace(o); o == "" || e.Rules.set(o) {
			continue
		}
		if !isOther(o) {
			p.problem(e.At, "see man 5 exports for how it is spelt", "exports(5) has no option %q: exportfs refuses it", o)
			continue
		}
		e.Others = strings.TrimPrefix(e.Others+","+o, ",")
	}
	return e
}
