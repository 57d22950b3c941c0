package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// habits are phrases that plain technical English almost never uses. limit is the highest accepted number for each
// 10,000 words of comments, strings and Markdown. Rewrite the sentence; do not replace one word. A limit may only fall.
var habits = []struct {
	name   string
	phrase *regexp.Regexp
	limit  float64
}{
	{"somebody, nobody, whoever", regexp.MustCompile(`\b(somebody|nobody|anybody|everybody|whoever|whosoever)\b`), 0.5},
	{"what is, what was, what has", regexp.MustCompile(`\bwhat (is|was|are|were|has|had|have|it|they|lacks|comes|came|becomes|became|stands|lies|of|did|does|cannot|can|may|must|will|would)\b`), 2},
	{"says, tells, is told, asks", regexp.MustCompile(`\b(says|said|tells|told|asks)\b`), 1},
	{"there is none, of its own, of theirs", regexp.MustCompile(`\b(is none|are none|of its own|of their own|of theirs|of ours|of yours|of whom|of which)\b`), 1},
	{"where for if or when", regexp.MustCompile(`(?m)(^|[.;:,] )[Ww]here (it|there|that|they|nothing|none|no|a|an|the|one)\b`), 1},
	{"anew, thrice, amid, hence, thereof", regexp.MustCompile(`\b(anew|thrice|amid|amidst|hence|thereof|whereof|wherever|therein|beneath)\b`), 0.5},
	{"is to be, are to be", regexp.MustCompile(`\b(is|are|was|were) to be\b`), 0.5},
}

const (
	maxFragments = 2.0  // percent of trailing comments that cannot be read alone
	maxOneWord   = 20.0 // percent of unexported functions that are named by one lower-case word
)

var (
	fragment = regexp.MustCompile(`^(of|that|who|whose|what|which|it|them|they|those|nil|for|by|in|to|at|as|from|with)\b`)
	oneWord  = regexp.MustCompile(`^[a-z]+$`)
	codeSpan = regexp.MustCompile("`[^`]*`")
)

// proseStats counts the habits in texts.
type proseStats struct {
	commentsOnly bool // do not count strings: those of tests contain foreign text

	words, trailing, fragments int
	functions, oneWord         int
	found                      []int
	examples                   []string
}

func (p *proseStats) countText(place, text string) {
	p.words += len(strings.Fields(text))
	for i, h := range habits {
		n := len(h.phrase.FindAllStringIndex(text, -1))
		p.found[i] += n
		if n > 0 && p.examples[i] == "" {
			p.examples[i] = place
		}
	}
}

func (p *proseStats) countMarkdown(file, text string) {
	code := false
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			code = !code
		case !code && !strings.HasPrefix(line, "    "):
			p.countText(fmt.Sprintf("%s:%d", file, i+1), codeSpan.ReplaceAllString(line, ""))
		}
	}
}

// countSource counts comments, strings that contain a space unless commentsOnly is set, and names of functions.
func (p *proseStats) countSource(file, text string) error {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && !f.Name.IsExported() {
			p.functions++
			if oneWord.MatchString(f.Name.Name) {
				p.oneWord++
			}
		}
	}
	var s scanner.Scanner
	f := files.AddFile(file, -1, len(text))
	s.Init(f, []byte(text), nil, scanner.ScanComments)
	lastLine := 0 // line of the last token that is not a comment
	for {
		pos, tok, lit := s.Scan()
		line := f.Line(pos)
		switch {
		case tok == token.EOF:
			return nil
		case tok == token.COMMENT:
			comment := strings.TrimSpace(strings.TrimPrefix(lit, "//"))
			p.countText(fmt.Sprintf("%s:%d", file, line), comment)
			if line == lastLine && comment != "" {
				p.trailing++
				if fragment.MatchString(comment) {
					p.fragments++
				}
			}
		case tok == token.STRING && strings.Contains(lit, " "):
			if value, err := strconv.Unquote(lit); err == nil && !p.commentsOnly {
				p.countText(fmt.Sprintf("%s:%d", file, line), value)
			}
			lastLine = line
		case tok != token.SEMICOLON || lit == ";":
			lastLine = line
		}
	}
}

func newProse() *proseStats {
	return &proseStats{found: make([]int, len(habits)), examples: make([]string, len(habits))}
}

func percentage(part, whole int) float64 {
	return 100 * float64(part) / float64(max(whole, 1))
}

func TestTextIsPlainEnglish(t *testing.T) {
	p, tests := newProse(), newProse()
	tests.commentsOnly = true
	for _, file := range trackedFiles(t, "*.md") {
		p.countMarkdown(file, readFile(t, file))
	}
	for _, file := range trackedFiles(t, "*.go") {
		if strings.Contains(filepath.ToSlash(file), "/testdata/") {
			continue
		}
		stats := p
		if strings.HasSuffix(file, "_test.go") {
			stats = tests
		}
		if err := stats.countSource(file, readFile(t, file)); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("product", func(t *testing.T) { p.check(t, 100_000) })
	t.Run("tests", func(t *testing.T) { tests.check(t, 50_000) })
}

// check fails if a rate is above its limit, or if fewer words than minWords were counted.
func (p *proseStats) check(t *testing.T, minWords int) {
	if p.words < minWords || p.functions < 1000 || p.trailing < 500 {
		t.Fatalf("found only %d words, %d functions, %d trailing comments", p.words, p.functions, p.trailing)
	}
	for i, h := range habits {
		rate := float64(p.found[i]) * 10_000 / float64(p.words)
		t.Logf("%6.1f per 10,000 words: %s", rate, h.name)
		if rate > h.limit {
			t.Errorf("%q occurs %.1f times per 10,000 words, the limit is %.1f; first in %s", h.name, rate, h.limit, p.examples[i])
		}
	}
	t.Logf("%6.1f %% of trailing comments cannot be read alone", percentage(p.fragments, p.trailing))
	if rate := percentage(p.fragments, p.trailing); rate > maxFragments {
		t.Errorf("%.1f %% of trailing comments begin in the middle of a sentence, the limit is %.1f", rate, maxFragments)
	}
	t.Logf("%6.1f %% of unexported functions have a name of one word", percentage(p.oneWord, p.functions))
	if rate := percentage(p.oneWord, p.functions); rate > maxOneWord {
		t.Errorf("%.1f %% of unexported functions have a name of one word, the limit is %.1f", rate, maxOneWord)
	}
}

func TestCountProse(t *testing.T) {
	p := newProse()
	p.countMarkdown("page.md", "Nobody knows what is here.\n\n```\nsomebody\n```\n\n    whoever\n`nobody` says\n")
	err := p.countSource("file.go", `package p

// put tells what it does.
func put() {} // of it

func readFile() string { return "where it is, somebody asks" } // the content of the file
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []int{1, 2, 3, 0, 1, 0, 0} // "Nobody" begins with an upper-case letter and is not counted
	if fmt.Sprint(p.found) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v", p.found, want)
	}
	if p.trailing != 2 || p.fragments != 1 || p.functions != 2 || p.oneWord != 1 {
		t.Errorf("got %d of %d trailing comments and %d of %d functions, want 1 of 2 each", p.fragments, p.trailing, p.oneWord, p.functions)
	}
}

// minComments is the lowest accepted share of lines of internal/ that have a comment, in percent. It may only rise.
const minComments = 18

// commentedLines returns the numbers of lines and of lines with a comment.
func commentedLines(file, text string) (lines, commented int) {
	files := token.NewFileSet()
	f := files.AddFile(file, -1, len(text))
	var s scanner.Scanner
	s.Init(f, []byte(text), nil, scanner.ScanComments)
	last := 0 // last line that is counted
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return strings.Count(text, "\n"), commented
		}
		if tok == token.COMMENT {
			first := max(f.Line(pos), last+1)
			last = f.Line(pos) + strings.Count(lit, "\n")
			commented += last - first + 1
		}
	}
}

func TestCodeIsCommented(t *testing.T) {
	lines, commented := 0, 0
	for _, file := range trackedFiles(t, "internal/*.go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		n, c := commentedLines(file, readFile(t, file))
		lines, commented = lines+n, commented+c
	}
	share := percentage(commented, lines)
	t.Logf("%.1f %% of %d lines have a comment", share, lines)
	if share < minComments {
		t.Errorf("%.1f %% of the lines of internal/ have a comment, the lowest accepted share is %d", share, minComments)
	}
}

func TestCommentedLines(t *testing.T) {
	lines, commented := commentedLines("file.go", "// one\npackage p // two\n\n/* three\nfour */ var s = \"// text\" // still four\nvar t = `\n// text\n`\n")
	if lines != 8 || commented != 4 {
		t.Errorf("%d lines, %d with a comment; want 8 and 4", lines, commented)
	}
}
