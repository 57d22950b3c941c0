package main

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/selector"
)

// topicFiles has a text for each help topic. Its first line is the title.
//
//go:embed topics/*.txt
var topicFiles embed.FS

// topic is a text of decamp help that belongs to no single command.
type topic struct {
	name  string // name for decamp help
	title string // one line
	body  string // text below the title
}

// helpTopics returns all topics, sorted by name.
func helpTopics() []topic {
	entries, err := topicFiles.ReadDir("topics")
	if err != nil {
		panic(err) // the folder is part of the binary
	}
	topics := []topic{{"selection", "Selection: expressions that select VMs", selectionHelp()}}
	for _, e := range entries {
		text, err := topicFiles.ReadFile(path.Join("topics", e.Name()))
		if err != nil {
			panic(err) // the file is part of the binary
		}
		title, body, _ := strings.Cut(string(text), "\n")
		topics = append(topics, topic{strings.TrimSuffix(e.Name(), ".txt"), title, strings.Trim(body, "\n")})
	}
	slices.SortFunc(topics, func(a, b topic) int { return strings.Compare(a.name, b.name) })
	return topics
}

// topicList returns the topics with their titles, one per line.
func topicList() string {
	var lines []string
	for _, t := range helpTopics() {
		lines = append(lines, fmt.Sprintf("  %-13s %s", t.name, t.title))
	}
	return strings.Join(lines, "\n")
}

// selectionHelp returns the text of the help topic about selections, with all fields.
func selectionHelp() string {
	t := newTable()
	t.rows = nil
	for _, f := range selector.Fields() {
		t.addRow("  "+f.Name, f.Means)
	}
	var b strings.Builder
	t.writeTo(&b)
	return strings.Trim(selectionOperators, "\n") + "\n\n" + strings.TrimRight(b.String(), "\n")
}

const selectionOperators = `
An expression of --select and of the key select in plan files compares fields of a VM:

    folder=prod && !poweredOn
    (os~windows* || firmware=efi) && size<500GiB

= and != compare text. ~ compares text with a pattern of * and ?. < <= > >= compare numbers and
sizes. && and || join terms, ! negates, and parentheses group. The fields are:
`
