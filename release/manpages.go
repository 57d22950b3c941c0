package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A page is the help of a command.
type page struct {
	command  string    // words of the command, such as decamp plan run
	intro    string    // description
	sections []section // further parts in their order
}

// A section is a part of a help, such as Flags.
type section struct{ title, body string }

var (
	// fencedSection matches a section of a command in docs/commands.md.
	fencedSection = regexp.MustCompile("(?s)\n([A-Z][A-Za-z ]*):\n\n```\n(.*?)\n```\n")

	// fencedTopic matches a help topic in docs/commands.md.
	fencedTopic = regexp.MustCompile("(?s)\n### decamp help ([a-z-]+)\n\n```\n(.*?)\n```\n")

	// plainSection matches a section of the help of decamp-lab.
	plainSection = regexp.MustCompile(`(?m)^([A-Z][A-Za-z ]*):\n((?: +.*\n)+)`)

	// twoColumns matches a term with its explanation: a flag, a command or an exit code.
	twoColumns = regexp.MustCompile(`^ {2,6}(-\S.*?|\S+) {2,}(\S.*)$`)
)

// readManPages returns the manual pages of a program by file name. They have the texts of the command reference
// in docs, which tests keep equal to the help.
func (r *release) readManPages(p program) (map[string][]byte, error) {
	pages := map[string][]byte{}
	if p.plugin {
		return pages, nil // nbdkit nfc --help lists its parameters
	}
	if p.name != "decamp" {
		text, err := os.ReadFile(filepath.Join(r.root, "docs", "lab.md"))
		if err != nil {
			return nil, err
		}
		_, help, _ := strings.Cut(string(text), "```help\n")
		help, _, found := strings.Cut(help, "```\n")
		if !found {
			return nil, fmt.Errorf("docs/lab.md contains no help")
		}
		one := page{command: p.name}
		one.intro, one.sections = cutSections(help, plainSection)
		pages[p.name+".1"] = r.formatManPage(one, p.summary)
		return pages, nil
	}
	text, err := os.ReadFile(filepath.Join(r.root, "docs", "commands.md"))
	if err != nil {
		return nil, err
	}
	commands, topics, found := strings.Cut(string(text), "\n## Help topics\n")
	if !found {
		return nil, fmt.Errorf("docs/commands.md contains no help topics")
	}
	summaries := map[string]string{p.name: p.summary}
	for _, part := range strings.Split(commands, "\n## ")[1:] {
		command, help, _ := strings.Cut(part, "\n")
		one := page{command: command}
		one.intro, one.sections = cutSections(help+"\n", fencedSection)
		for _, s := range one.sections {
			for line := range strings.Lines(s.body) {
				if name, summary, ok := cutColumns(line); ok && s.title == "Commands" {
					summaries[command+" "+name] = summary
				}
			}
		}
		if summaries[command] == "" {
			return nil, fmt.Errorf("docs/commands.md: no list of commands contains %s", command)
		}
		pages[strings.ReplaceAll(command, " ", "-")+".1"] = r.formatManPage(one, summaries[command])
	}
	for _, m := range fencedTopic.FindAllStringSubmatch(topics, -1) {
		title, body, _ := strings.Cut(m[2], "\n")
		pages["decamp-"+m[1]+".7"] = r.formatTopic(m[1], title, body)
	}
	return pages, nil
}

// cutSections returns the text before the sections of a help, and the sections.
func cutSections(help string, pattern *regexp.Regexp) (intro string, sections []section) {
	intro = help
	if first := pattern.FindStringIndex(help); first != nil {
		intro = help[:first[0]]
	}
	for _, m := range pattern.FindAllStringSubmatch(help, -1) {
		sections = append(sections, section{m[1], m[2]})
	}
	return strings.Trim(intro, "\n"), sections
}

// cutColumns returns the term and the explanation of a line with two columns.
func cutColumns(line string) (term, explanation string, ok bool) {
	m := twoColumns.FindStringSubmatch(strings.TrimRight(line, "\n"))
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// formatManPage returns the manual page of a command in roff's format.
func (r *release) formatManPage(p page, summary string) []byte {
	name := strings.ReplaceAll(p.command, " ", "-")
	b := r.startManPage(name, 1, summary)
	for _, s := range p.sections {
		if s.title == "Usage" {
			b.addHeading("Synopsis")
			b.addVerbatim(s.body)
		}
	}
	b.addHeading("Description")
	b.addText(p.intro)
	for _, s := range p.sections {
		switch s.title {
		case "Usage":
			continue
		case "Examples":
			b.addHeading(s.title)
			b.addVerbatim(s.body)
		default:
			b.addHeading(s.title)
			b.addColumns(s.body)
		}
	}
	b.addHeading("See also")
	b.addText("The documentation with tutorials and guides: " + homepage)
	return []byte(b.String())
}

// formatTopic returns the manual page of a help topic.
func (r *release) formatTopic(name, title, body string) []byte {
	b := r.startManPage("decamp-"+name, 7, title)
	b.addHeading("Description")
	b.addText(strings.Trim(body, "\n"))
	b.addHeading("See also")
	b.WriteString(".BR decamp (1)\n")
	return []byte(b.String())
}

// roff is a manual page in roff's format.
type roff struct{ strings.Builder }

// startManPage returns a page that consists of its header and its name.
func (r *release) startManPage(name string, section int, summary string) *roff {
	b := &roff{}
	fmt.Fprintf(b, ".TH %s %d %s \"decamp %s\" \"decamp manual\"\n", strings.ToUpper(name), section, r.date.Format("2006-01-02"), r.version)
	b.addHeading("Name")
	fmt.Fprintf(b, "%s \\- %s\n", escapeRoff(name), escapeRoff(strings.ToLower(summary[:1])+summary[1:]))
	return b
}

// addHeading begins a section.
func (b *roff) addHeading(title string) { fmt.Fprintf(b, ".SH %s\n", strings.ToUpper(title)) }

// addText adds paragraphs. Indented lines keep their form.
func (b *roff) addText(text string) {
	for i, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			b.addVerbatim(paragraph)
		} else {
			fmt.Fprintln(b, escapeRoff(paragraph))
		}
	}
}

// addVerbatim adds lines that keep their form.
func (b *roff) addVerbatim(text string) {
	fmt.Fprintf(b, ".nf\n%s\n.fi\n", escapeRoff(strings.TrimRight(text, "\n")))
}

// addColumns adds terms with explanations. A text that is no such list keeps its form.
func (b *roff) addColumns(text string) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if _, _, ok := cutColumns(lines[0]); !ok {
		b.addVerbatim(text)
		return
	}
	for _, line := range lines {
		if term, explanation, ok := cutColumns(line); ok {
			fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s\n", escapeRoff(term), escapeRoff(explanation))
		} else {
			fmt.Fprintln(b, escapeRoff(strings.TrimSpace(line)))
		}
	}
}

// escapeRoff escapes the characters that roff interprets.
func escapeRoff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
