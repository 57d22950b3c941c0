package export

import (
	"fmt"
	"strings"
)

// An Export is one folder that is exported to one client.
type Export struct {
	Path   string   // exported folder
	Client Client   // clients that may mount it
	Rules  Rules    // options that affect ESXi
	Others string   // other options, unchanged
	At     Position // position in the configuration
}

// String returns client:path, the form of exportfs.
func (e Export) String() string { return string(e.Client) + ":" + e.Path }

// optionsWith returns the options of e in the format of exports(5), with other rules.
func (e Export) optionsWith(r Rules) string {
	if e.Others == "" {
		return r.toOptions()
	}
	return r.toOptions() + "," + e.Others
}

// Position is a position in a file.
type Position struct {
	File        string // path on this machine
	First, Last int    // first and last line, from 1; 0 if the source has no lines
}

// String returns file:line.
func (p Position) String() string {
	if p.First == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.First)
}

// A Problem is a line that has no effect, or another effect than it seems to have.
type Problem struct {
	At     Position // position of the line
	Seen   string   // description of the problem
	Remedy string   // action for the user
}

// A dialect is a text format with a folder and its clients on each line.
type dialect struct {
	defaults Rules // rules without options
	strict   bool  // report unusual lines as Problems, because users write the file
}

var (
	written     = dialect{defaults, true}        // format of exports(5)
	etab        = dialect{defaults, false}       // format of /var/lib/nfs/etab and of exportfs -v
	kernelTable = dialect{kernelDefaults, false} // format of /proc/fs/nfsd/exports
)

// ParseExports parses a file in the format of exports(5). Lines that cannot be parsed
// are Problems; the rest is returned.
func ParseExports(text, file string) ([]Export, []Problem) { return parseText(text, file, written) }

// ParseTable parses /var/lib/nfs/etab or the output of exportfs -v, in which long paths
// have a separate line.
func ParseTable(text, file string) []Export {
	exports, _ := parseText(strings.ReplaceAll(text, "\n\t", "\\\n\t"), file, etab)
	return exports
}

// ParseKernel parses /proc/fs/nfsd/exports. The kernel lists only exports that were
// used recently.
func ParseKernel(text, file string) []Export {
	exports, _ := parseText(text, file, kernelTable)
	return exports
}

// parseText parses a text in one of the dialects.
func parseText(text, file string, d dialect) ([]Export, []Problem) {
	p := parser{dialect: d}
	for _, l := range logicalLines(text, file) {
		p.parseLine(l)
	}
	return p.exports, p.problems
}

// parser collects the exports and problems of one file.
type parser struct {
	dialect
	exports  []Export  // exports in the order of the file
	problems []Problem // lines to correct; empty unless strict
}

// addProblem records a problem if the dialect is strict.
func (p *parser) addProblem(at Position, remedy, format string, args ...any) {
	if p.strict {
		p.problems = append(p.problems, Problem{at, fmt.Sprintf(format, args...), remedy})
	}
}

// parseLine parses a folder and its clients. Options after "-" are defaults for the
// following clients. A line without clients exports to all hosts.
func (p *parser) parseLine(l line) {
	words, whole := l.splitWords()
	if !whole {
		p.addProblem(l.at, "close the quotes of the path", "a quotation mark is not closed")
	}
	if len(words) == 0 {
		return
	}
	folder := words[0]
	if !strings.HasPrefix(folder, "/") {
		p.addProblem(l.at, "begin the line with the absolute path of the folder", "%q is not an absolute path: the line exports nothing", folder)
		return
	}
	// Options after a dash change the defaults of the line.
	d, before := Export{Path: folder, Rules: p.defaults, At: l.at}, len(p.exports)
	for i, w := range words[1:] {
		if options, ok := strings.CutPrefix(w, "-"); ok {
			d = p.parseOptions(d, options)
			continue
		}
		if strings.HasPrefix(w, "(") && i > 0 && !strings.ContainsAny(words[i], "(") {
			p.addProblem(l.at, fmt.Sprintf("remove the space: %s%s", words[i], w),
				"a space before %s exports %s to all hosts with these options, and to %s with the defaults, read-only and sync", w, folder, words[i])
		}
		p.parseClient(d, w)
	}
	if len(p.exports) == before { // without a client: all hosts
		d.Client = Everybody
		p.exports = append(p.exports, d)
	}
}

// parseClient parses client(options). e contains the folder and the defaults of the
// line.
func (p *parser) parseClient(e Export, word string) {
	name, options, has := strings.Cut(word, "(")
	options, closed := strings.CutSuffix(options, ")")
	if has && !closed {
		p.addProblem(e.At, "write the options without spaces: (rw,async,no_root_squash)", "%q has no closing parenthesis", word)
	}
	if has {
		e = p.parseOptions(e, options)
	}
	for c := range strings.SplitSeq(name, ",") { // the kernel joins clients that an address belongs to
		if c == "" {
			c = string(Everybody)
		}
		e.Client = Client(c).canonical()
		p.exports = append(p.exports, e)
	}
}

// parseOptions returns e with the options in text. Unknown options are problems.
func (p *parser) parseOptions(e Export, text string) Export {
	for o := range strings.SplitSeq(text, ",") {
		if o = strings.TrimSpace(o); o == "" || e.Rules.setOption(o) {
			continue
		}
		if !isOther(o) {
			p.addProblem(e.At, "correct the option; for a list: man 5 exports", "unknown option %q: exportfs rejects it", o)
			continue
		}
		e.Others = strings.TrimPrefix(e.Others+","+o, ",")
	}
	return e
}
